"""A cluster of machines through Ray."""
