"""What a search, a training and their outcomes look like in a terminal, and in a notebook."""
