"""The Ray Serve deployments.

:mod:`gate` and :mod:`http` accept requests, :mod:`session` owns meshes, and :mod:`scoring` scores their snapshots. The
collector polls meshes, and the notifier delivers alerts.
"""
