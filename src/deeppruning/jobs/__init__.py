"""One job from preparation to its result: search, fine-tuning, saved solutions."""
