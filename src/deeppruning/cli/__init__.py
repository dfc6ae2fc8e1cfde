"""The command `deeppruning`: one file per command, imported only when it is called."""
