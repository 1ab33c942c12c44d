"""Recordings as data sets of other libraries."""
