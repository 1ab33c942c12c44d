"""The demo: a simulated mesh, sent over HTTP to a service that the demo starts.

Nothing is imported here, so that the process of ``remote_control`` does not load the simulator.
"""
