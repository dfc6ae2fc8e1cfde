"""Ways to prune, each one class, asked for networks of the same FLOPs; a file put here is found by itself."""

ORDER = ("ranking", "thinet", "auto_balanced", "genetic", "nsga", "searching", "uniform_width")
