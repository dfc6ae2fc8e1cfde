"""How much each filter matters: criteria and the activations some of them look at."""
