"""The parts of ``benchmarks/bench_missing.py``.

gaps      which telemetry goes missing, and when
filling   values in place of missing ones
"""
