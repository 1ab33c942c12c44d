"""Measures of verdicts against ground truth. No module here reads a file; ``metrics`` has all of them."""
