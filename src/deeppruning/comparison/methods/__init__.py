"""Ways to prune, each one class, asked for networks of the same FLOPs; a file put here is found by itself."""

ORDER = (
    *("ranking", "thinet", "refitted", "auto_balanced"),
    *("widths", "searching", "nsga", "genetic", "uniform_width"),
)
