"""The laboratory: what builds and judges the detector. Nothing that runs in production imports it.

simulator    meshes with faults, benign changes and gaps in their telemetry, as snapshots
training     training data, and the training of the shipped weights
evaluation   detectors measured on labelled recordings
contenders   detectors that TAGAE is compared with
comparison   TAGAE and its contenders on the same recordings
demo         the whole system on a simulated mesh, with a panel on the page

The command line imports it when ``simulate``, ``train``, ``evaluate`` or ``demo`` is called. Benchmarks build on it.
"""
