"""TAGAE and its contenders, compared on the same recordings: what `make evaluate` and other benchmarks share.

simulated  recordings of the simulated evaluation set
plan       what is scored, on which recordings, warmed up by what
digest     a digest of everything that decides our verdicts
cases      every second case of a recording, for choosing or for reporting
lines      verdict lines of a detector on recordings, kept until its code, its weights or a recording changes
parts      the lines evaluated recording by recording, and recordings grouped for the report
rows       one row of results per measure and detector

The metrics come from ``lab.evaluation.measures``.
"""
