"""Comparison of TAGAE and its contenders on the same recordings, for `make evaluate` and other benchmarks."""
