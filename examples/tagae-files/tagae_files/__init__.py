"""A store, a source and a receiver for TAGAE that need only a folder."""
