"""Blind trials: is a fault found, is the right service named first, and does the next step fit?

trials  what happens in each, at services drawn by the seed, and what a right answer is
score   the verdicts of a trial, and how they answer
"""
