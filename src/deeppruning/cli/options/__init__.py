"""Options that several commands share, and what they are turned into."""
