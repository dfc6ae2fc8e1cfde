"""A pool of local processes."""
