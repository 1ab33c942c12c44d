"""The session: owns some of the meshes, and answers all queries about them.

:mod:`mesh_session` is the deployment. :mod:`reader` has the queries. :mod:`service_graphs` has the counters of meshes
whose collectors push metrics.
"""
