"""Ray and Ray Serve, and nothing about meshes: their start and end, their processes, and calls between replicas.

Only this package depends on Ray's internals, so that a new version of Ray affects no other.
"""
