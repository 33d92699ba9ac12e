"""`perflint profile`: what each line of a training script costs, and which findings are worth a fix."""
