"""An nginx of one's own with the configuration that we ship: the same text, but for the ports and the path."""

import os
from pathlib import Path

import httpx

from tests.live.deployed import DEPLOY
from tests.live.programs import LOOPBACK, NotReady, Program, find_program, free_ports
from tests.timing import PATIENCE_SECONDS

SHIPPED = DEPLOY / "nginx" / "tagae.conf"
LISTEN, UPSTREAM, PLACE = "listen 127.0.0.1:8080;", "proxy_pass http://127.0.0.1:8000/;", "location /tagae/ {"
# What includes the shipped file: everything in a folder, nothing in the background. Root would give the work to another
# user, who may not look into the folders of tests.
AROUND = """\
{user}daemon off;
pid {folder}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/tagae.conf;
}}
"""


class Nginx:
    """Starts and ends as often as one likes, at the same place.

    Args:
        folder: for its configuration, temporary files and log.
        upstream: port of the service, which need not be there.
        path: below which it is told to serve; begins and ends with a slash.
    """

    def __init__(self, folder: Path, upstream: int, path: str = "/tagae/") -> None:
        (port,) = free_ports(1)
        self.origin = f"http://{LOOPBACK}:{port}"
        self.url = self.origin + path
        self._folder = folder
        self._program: Program | None = None
        text = SHIPPED.read_text(encoding="utf-8")
        for ours, theirs in (
            (LISTEN, f"listen {LOOPBACK}:{port};"),
            (UPSTREAM, f"proxy_pass http://{LOOPBACK}:{upstream}/;"),
            (PLACE, f"location {path} {{"),
        ):
            assert text.count(ours) == 1, f"{SHIPPED}: expected one {ours!r}, so that a test can have its own"
            text = text.replace(ours, theirs)
        (folder / "tagae.conf").write_text(text, encoding="utf-8")
        user = "" if os.getuid() else "user root;\n"
        (folder / "nginx.conf").write_text(AROUND.format(folder=folder, user=user), encoding="utf-8")

    def start(self) -> None:
        """Until it listens.

        Raises:
            NotReady: it does not.
        """
        command = [find_program("nginx") or "nginx", "-p", str(self._folder), "-c", "nginx.conf", "-e", "stderr"]
        self._program = Program("nginx", command, self._folder / "nginx.log")
        try:
            self._program.wait_until(self._listens)
        except NotReady:
            self.end()
            raise

    def end(self) -> None:
        """At once: who is connected is cut off."""
        if self._program is not None:
            self._program.end()

    def _listens(self) -> bool:
        try:
            httpx.get(self.origin, timeout=PATIENCE_SECONDS, trust_env=False)
        except httpx.ConnectError:
            return False
        return True
