"""Running a network once, operation by operation, with labels beside its activations."""
