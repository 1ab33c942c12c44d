"""HTTP servers of tests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietHandler(BaseHTTPRequestHandler):
    """Answers on connections that stay open, and prints nothing."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or a body waits 40 ms for the client to acknowledge the headers

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def send(self, status: int, content: bytes = b"", **headers: str) -> None:
        """Send a whole answer; an underscore in the name of a header is a hyphen."""
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Keep requests out of the output of the tests."""


@contextmanager
def serve_in_thread(server: ThreadingHTTPServer) -> Iterator[str]:
    """Run a server inside the block, and yield its URL."""
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
