"""What flows beside the activations of a run on labels: atoms, and what a tensor carries of them."""
