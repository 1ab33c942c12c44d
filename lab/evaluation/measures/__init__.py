"""Measures of verdicts against ground truth. No module here reads a file.

truth       labels and windows of a recording
series      a detector's verdicts aligned with the snapshots of a recording
alarms      alarm events, incidents found, false alarms, recall at a budget of them
curves      scores without a threshold: AUROC; probabilities: Brier score
ranking     the rank of the root cause among the suspects
located     alerts compared with faults whose location is known
thresholds  the same alerts with higher thresholds
recording   all results of one detector on one recording
metrics     metrics over one recording or several
intervals   95% intervals
"""
