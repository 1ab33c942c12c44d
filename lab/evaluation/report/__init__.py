"""The measures for people and programs.

cells       a measure as text
tables      the measures as rows
documents   as JSON
terminal    as tables
charts      plots
html        as one page
"""
