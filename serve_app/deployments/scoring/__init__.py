"""Scores snapshots: the scorers and the meta-model, and the two places where a session can have a snapshot scored.

:mod:`in_session` scores in the session's own process. :mod:`replicas` calls :mod:`scorer` and :mod:`meta`.
"""
