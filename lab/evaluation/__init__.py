"""``tagae evaluate``: measures detectors on labelled recordings by their verdict files."""
