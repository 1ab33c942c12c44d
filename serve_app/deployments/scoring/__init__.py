"""Scores snapshots: the scorers, the meta-model, and the two places where a session's snapshots can be scored.

:mod:`in_session` scores in the session's own process. :mod:`replicas` calls :mod:`scorer` and :mod:`meta`.
"""
