"""Measures of verdicts against ground truth, without files; ``metrics`` has all of them."""
