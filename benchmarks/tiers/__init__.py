"""Cheaper forms of the network, for `benchmarks.bench_tiers`.

student       a network without messages between services, distilled from the full one
distillation  trains it
lowered       the full network in bf16 and in INT8
"""
