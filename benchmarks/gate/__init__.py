"""The gate compares the detector with recorded figures (``figures``): from recordings (``recordings``) and simulated
meshes (``simulated``), measured in pieces for processes (``pieces``)."""
