"""Real image data: what is known by name, what a user brings, and how batches are made of it."""
