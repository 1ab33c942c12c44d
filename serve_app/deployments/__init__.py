"""The Ray Serve deployments: a file for each of the small ones, a folder for each of the others.

:mod:`gate` and :mod:`http` take requests, :mod:`session` owns meshes, and :mod:`scoring` scores their snapshots. The
collector polls meshes, and the notifier delivers alerts.
"""
