"""`python -m deeppruning` is the command `deeppruning`."""

from deeppruning.cli.main import main

if __name__ == "__main__":
    main()
