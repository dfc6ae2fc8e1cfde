"""The commands, a file each, loaded only when called."""
