"""``tagae evaluate``: detectors measured on labelled recordings by their verdict files."""
