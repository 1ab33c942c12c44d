"""Stores on one node: a SQLite file."""
