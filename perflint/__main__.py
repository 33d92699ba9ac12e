"""`python -m perflint`, and the command `perflint`."""

from perflint.cli import main

if __name__ == "__main__":
    main()
