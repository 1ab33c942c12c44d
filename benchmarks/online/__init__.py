"""Parts of ``benchmarks.bench_online``: meshes, what is learned from one of them, and how well it predicts."""
