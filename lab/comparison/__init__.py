"""TAGAE and its contenders, compared on the same recordings: what `make evaluate` and other benchmarks share."""
