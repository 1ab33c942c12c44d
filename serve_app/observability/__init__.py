"""Reports about the service's own work besides metrics: spans along a snapshot's path, and log lines as JSON.

:mod:`spans` is used where the work is done. It needs no package, and does nothing until :mod:`export` starts to send
spans to a collector. :mod:`logs` also holds the work's mesh and snapshot.
"""
