"""Three generators of labelled meshes that share no code: our simulator, another one, real traffic with faults."""
