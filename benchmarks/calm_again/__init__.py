"""Small meshes with a known truth, without the simulator (``mesh``), scenarios (``cases``), their verdicts, each
reduced to a mark (``score``), and lines with a number, its limit, and OK or FAULT (``judge``)."""
