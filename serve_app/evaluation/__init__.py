"""``tagae evaluate``: detectors measured on labelled recordings by their verdict files.

inputs      matches files of verdicts with recordings
load        reads labels and verdicts
run         every detector on every recording
tables      the metrics as rows
words       metrics as text
documents   the results as JSON
terminal    the results as tables
charts      plots
html        the results as one page
"""
