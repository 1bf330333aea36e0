"""What the command line can do beyond `workbench.__main__`: one module for each command."""
