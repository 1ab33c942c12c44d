"""A private Redis or Valkey in a folder of the test."""

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from serve_app.settings import StoreSettings
from tests.live.programs import LOOPBACK, Program, find_program, free_ports, needs

PROGRAM = next((name for name in ("redis-server", "valkey-server") if find_program(name)), "redis-server")

ON_RAY_NODES = [  # marks of tests that run several Ray nodes with a Redis
    pytest.mark.live,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    needs(PROGRAM),
]


class RedisProgram:
    """A Redis on a free port that has each change on the disk before it answers. Started at once.

    With ``everysec`` it keeps answered changes in memory for up to two seconds while the disk is slow, so that a test
    that kills it would depend on the disk.

    Args:
        folder: for its data and its output.
        options: further options, such as ``("--maxmemory", "8mb")``; they override the defaults.
        config: of a Sentinel, which it then is.
    """

    def __init__(self, folder: Path, *options: str, config: Path | None = None) -> None:
        self.folder, self.port, self._config = folder, free_ports(1)[0], config
        folder.mkdir(parents=True, exist_ok=True)
        self._options = options
        self.start()

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    def settings(self, **changed: object) -> StoreSettings:
        return StoreSettings.model_validate({"kind": "redis", "url": self.url, **changed})

    def start(self) -> None:
        """Start it with the data in its folder, and wait until it answers."""
        program = find_program(PROGRAM)
        assert program is not None
        defaults = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
        places = ("--bind", LOOPBACK, "--port", str(self.port), "--dir", str(self.folder))
        if self._config is None:
            command = [program, *places, *defaults, *self._options]
        else:
            command = [program, str(self._config), "--sentinel", *places]
        self._program = Program(PROGRAM, command, self.folder / "output.log")
        self._program.wait_until(self._answers)

    @property
    def running(self) -> bool:
        return self._program.running

    @property
    def pid(self) -> int:
        return self._program.pid

    def kill(self) -> None:
        """Kill it, as if its process died."""
        self._program.kill()

    def pause(self) -> None:
        """Stop it, as if it hung."""
        self._program.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._program.send(signal.SIGCONT)

    def client(self) -> Any:
        """A client for the test's own hands; redis-py types answers as bytes or text."""
        return redis.Redis(LOOPBACK, self.port)

    def end(self) -> None:
        self._program.send(signal.SIGCONT)
        self._program.end()

    def _answers(self) -> bool:
        try:
            with closing(self.client()) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
