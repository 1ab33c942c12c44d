"""The laboratory: what builds and judges the detector. Nothing that runs in production imports it."""
