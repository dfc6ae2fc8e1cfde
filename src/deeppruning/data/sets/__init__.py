"""Data sets known by name: every file here enters its own in `data/known.py`, and is found by itself."""
