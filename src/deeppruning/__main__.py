"""`python -m deeppruning` is the command `deeppruning`."""

from deeppruning.cli.main import main

main()
