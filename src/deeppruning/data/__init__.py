"""Image data: data sets with a name, the user's own data, and batches of them."""
