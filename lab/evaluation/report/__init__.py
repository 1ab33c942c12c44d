"""The measures for people and programs."""
