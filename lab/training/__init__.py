"""The training of the shipped weights."""
