"""`perflint verify`: the fixed program computes the same as the original, and how much faster it is."""
