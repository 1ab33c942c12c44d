"""Where a mesh's state is kept between snapshots, behind one ``StateStore``."""
