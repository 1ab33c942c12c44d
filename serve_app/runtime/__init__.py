"""Ray and Ray Serve, and nothing about meshes: their start and end, their processes, and calls between replicas.

Only this package depends on the inside of Ray, so that a new version of Ray concerns no other.
"""
