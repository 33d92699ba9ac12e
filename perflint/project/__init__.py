"""The files of a project: which there are, how they import each other, how they are configured."""
