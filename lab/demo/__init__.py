"""The demo: a simulated mesh, sent over HTTP to a service that the demo starts.

This package imports nothing, so that ``remote_control``'s process does not load the simulator.
"""
