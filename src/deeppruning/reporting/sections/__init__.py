"""The sections of the page: every file here adds its own to `SECTIONS` of `reporting/section.py`."""
