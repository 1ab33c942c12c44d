"""How `make evaluate` works: ``benchmarks/evaluate.py`` runs it.

plan      what is scored, on which recordings, warmed up by what
lines     verdict lines of a detector on recordings, kept until its code, its weights or a recording changes
judging   the lines judged, recording by recording
raised    the same lines with a higher limit
measures  the figures, one row for each measure and detector
report    one page of HTML
"""
