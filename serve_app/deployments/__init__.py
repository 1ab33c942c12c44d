"""The Ray Serve deployments: a file for each of the small ones, a folder for each of the others.

:mod:`gate` and :mod:`http` take requests, :mod:`session` owns meshes, :mod:`scoring` scores their snapshots, and
:mod:`sla` adds up the service level. The collector polls meshes, and the notifier delivers alerts.
"""
