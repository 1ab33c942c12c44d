"""The laboratory, which builds and judges the detector. No production code imports it."""
