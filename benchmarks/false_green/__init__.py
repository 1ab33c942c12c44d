"""Simulated meshes with events and expected verdicts (``cases``), their verdicts, each reduced to a mark (``score``),
and the judgement of cases and groups (``judge``), for ``benchmarks/bench_false_green.py``."""
