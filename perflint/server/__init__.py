"""`perflint server`: findings, fixes and rule pages in an editor, through the Language Server Protocol."""
