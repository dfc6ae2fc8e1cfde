"""What a finished run gives: its page, its networks as files, and whether they are really faster."""
