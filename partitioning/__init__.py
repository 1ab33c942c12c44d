"""Plans that cut a mesh into parts: pure functions on numpy arrays."""
