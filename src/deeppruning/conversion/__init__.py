"""Networks in forms that other programs run."""
