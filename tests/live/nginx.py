"""A private nginx with the shipped configuration: the same text, except for the ports and the path."""

import os
from pathlib import Path

import httpx

from tests.live.deployed import DEPLOY
from tests.live.programs import LOOPBACK, NotReady, Program, find_program, free_ports
from tests.timing import PATIENCE_SECONDS

SHIPPED = DEPLOY / "nginx" / "tagae.conf"
LISTEN, UPSTREAM, PLACE = "listen 127.0.0.1:8080;", "proxy_pass http://127.0.0.1:8000/;", "location /tagae/ {"
# This text includes the shipped file. It keeps all files in one folder and stays in the foreground. As root, nginx
# would run its workers as another user, who cannot read the folders of tests.
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
    """An nginx that can start and end several times, on the same port.

    Args:
        folder: for its configuration, temporary files and log.
        upstream: port of the service, which need not be there.
        path: prefix of all routes; begins and ends with a slash.
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
        """Start it and wait until it listens.

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
        """End it at once and close all connections."""
        if self._program is not None:
            self._program.end()

    def _listens(self) -> bool:
        try:
            httpx.get(self.origin, timeout=PATIENCE_SECONDS, trust_env=False)
        except httpx.ConnectError:
            return False
        return True
