"""Train and evaluate networks on labelled images: loop, optimiser, checkpoints, weights files."""
