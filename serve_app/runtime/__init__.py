"""Starts and stops Ray and Ray Serve, manages their processes, and calls replicas. It knows nothing about meshes.

Only this package depends on Ray's internals, so that a new version of Ray affects no other.
"""
