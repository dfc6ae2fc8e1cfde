"""Ways to prune, each one class, asked for networks of the same FLOPs."""
