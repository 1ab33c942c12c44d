"""The parts of `make evaluate`, which ``benchmarks/evaluate.py`` runs.

plan        jobs: detectors, recordings and warm-ups
lines       verdict lines of a detector on recordings, cached until its code, its weights or a recording changes
judging     judges the lines of each recording
thresholds  judges the same lines with higher thresholds
measures    rows of results, one for each measure and detector
report      the report, one page of HTML
workers     processes and progress bars
"""
