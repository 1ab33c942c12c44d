"""Training of the shipped weights."""
