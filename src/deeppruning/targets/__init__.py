"""The choice of a candidate within limits, and a search aimed at them."""
