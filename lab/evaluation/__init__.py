"""``tagae evaluate``: detectors measured on labelled recordings by their verdict files.

inputs      matches files of verdicts with recordings
load        reads labels and verdicts
measures    the measures; reads no file
run         every detector on every recording
report      the measures as tables and JSON
"""
