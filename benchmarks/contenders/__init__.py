"""Other ways to detect incidents, each a module, for comparison on the same footing.

A contender is warmed up on normal snapshots and then told one snapshot at a time; it answers with the pages that are
open. It never sees a label, and nothing of a snapshot before its time.
"""
