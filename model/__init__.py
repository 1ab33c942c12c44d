"""Features, state, autoencoder, scoring, calibration, meta-model and training of TAGAE (no Ray, no HTTP in here)."""
