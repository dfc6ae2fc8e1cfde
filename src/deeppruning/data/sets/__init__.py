"""Data sets with a name: every file here adds its own to `DATA_SETS` of `data/registry.py`."""
