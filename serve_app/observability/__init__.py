"""What the service reports about its own work besides metrics: spans of a snapshot's path, and log lines as JSON.

:mod:`spans` is used where the work is done. It needs no package, and does nothing until :mod:`export` starts to send
spans to a collector. :mod:`logs` also holds which mesh and snapshot the work is about.
"""
