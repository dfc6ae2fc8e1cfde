"""What each operation does to labels: move them, tie them, read them, freeze them."""
