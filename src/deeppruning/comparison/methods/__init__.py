"""Pruning methods, one class each; every file in this folder is imported automatically."""

ORDER = ("ranking", "auto_balanced", "searching")
