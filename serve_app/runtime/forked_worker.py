"""The program that Ray starts as a worker in place of its own. It asks the fork server to fork the worker, and ends.

If the fork server does not answer, this process becomes the worker, as with Ray's own program. Ray knows a worker by
the id on its command line, so the worker may be another process than the one that Ray started.

It imports little, because Ray waits for it.
"""

import json
import os
import socket
import sys
from importlib.util import find_spec

ADDRESS = "TAGAE_FORK_SERVER"  # environment variable: name of its abstract socket (unix(7)), which has no file
FIRST_BYTES = 64  # size of the message that passes the files; the rest follows


def default_worker() -> str:
    """The path of Ray's own worker program."""
    ray = find_spec("ray")  # finds it without importing it
    if ray is None or ray.origin is None:
        raise ModuleNotFoundError("No module named 'ray'", name="ray")
    # Ray offers no other way to find it.
    return os.path.join(os.path.dirname(ray.origin), "_private/workers/default_worker.py")


def is_forked() -> bool:
    """Ask the fork server for this worker, and return whether the worker runs."""
    request = {"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}
    message = json.dumps(request).encode()
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(f"\0{os.environ[ADDRESS]}")
            outputs = [sys.stdout.fileno(), sys.stderr.fileno()]
            socket.send_fds(server, [message[:FIRST_BYTES]], outputs)
            server.sendall(message[FIRST_BYTES:])
            server.shutdown(socket.SHUT_WR)
            return bool(server.recv(FIRST_BYTES))  # the process id; nothing if the server does not fork, or has ended
    except (OSError, KeyError):
        return False


if __name__ == "__main__" and not is_forked():
    os.execv(sys.executable, [sys.executable, default_worker(), *sys.argv[1:]])
