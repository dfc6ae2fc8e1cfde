"""Pruning methods, each one class, asked for networks of the same FLOPs; a file in this folder is found."""

ORDER = ("ranking", "auto_balanced", "searching")
