"""The parts of ``benchmarks/bench_false_green.py``.

cases     what happens in each simulated mesh, and what its verdicts must show
score     the verdicts of a case, each reduced to a mark
judge     whether a case holds, and whether a group keeps its bound
"""
