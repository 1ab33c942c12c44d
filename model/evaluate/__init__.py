"""Judging verdicts against ground truth, by the rules of EVALUATION.md. No room here reads a file.

truth      what is known of a recording: its labels and windows; what a detector said of each of its snapshots
alarms     alarm events, incidents found, false alarms, recall at a budget of them
curves     scores without a threshold: AUROC, average precision, VUS-PR; probabilities: Brier score, reliability
ranking    the culprit's place among the suspects
located    pages against faults whose place is known
judging    everything of one recording, summed up over one or several, and two detectors compared
intervals  95% intervals
"""
