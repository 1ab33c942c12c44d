"""The pipeline as one small process beside a workload, without Ray: one mesh, verdicts over gRPC."""
