"""The command `deeppruning`: one file a command, loaded only when it is called."""
