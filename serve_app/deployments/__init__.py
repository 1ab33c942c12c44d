"""The Ray Serve deployments. Small ones have a file each, the others a folder.

:mod:`gate` and :mod:`http` accept requests, :mod:`session` owns meshes, and :mod:`scoring` scores their snapshots. The
collector polls meshes, and the notifier delivers alerts.
"""
