"""The measures for people and programs.

tables      the measures as rows
documents   as JSON
terminal    as tables
"""
