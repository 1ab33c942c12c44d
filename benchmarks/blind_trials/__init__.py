"""Blind trials of faults at services that a seed draws, with the right answers (``trials``), and their scores
(``score``)."""
