"""The Redis of the manifests: a real one with its configuration, its command and its probe."""

import subprocess
from pathlib import Path
from typing import Any

import redis

from tests.cluster.rendering import CLUSTER
from tests.live.programs import LOOPBACK, Program, free_ports

SPEC = CLUSTER.one("StatefulSet")["spec"]["template"]["spec"]
(CONTAINER,) = SPEC["containers"]
PASSWORD = "a-password-of-the-test"


class RedisPod:
    """The container, with its files in a folder and on a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_ports(1)[0]
        (folder / "data").mkdir()
        (folder / "password").write_text(PASSWORD)
        text = CLUSTER.one("ConfigMap")["data"]["redis.conf"].replace("dir /data", f"dir {folder}/data")
        (folder / "redis.conf").write_text(f"{text}bind {LOOPBACK}\nport {self.port}\n")
        self.start()

    def start(self) -> None:
        self.program = Program("Redis", self.here(CONTAINER["command"]), self.folder / "output.log")
        self.program.wait_until(self.is_ready)

    def here(self, command: list[str]) -> list[str]:
        """The command with the paths and the port of the test."""
        changed = {
            "/etc/redis/redis.conf": f"{self.folder}/redis.conf",
            "/run/secrets/redis/password": f"{self.folder}/password",
            "redis-cli ": f"redis-cli -h {LOOPBACK} -p {self.port} ",
        }
        for ours, theirs in changed.items():
            command = [word.replace(ours, theirs) for word in command]
        return command

    def is_ready(self) -> bool:
        command = self.here(CONTAINER["readinessProbe"]["exec"]["command"])
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def client(self, password: str | None = PASSWORD) -> Any:
        return redis.Redis(LOOPBACK, self.port, password=password)
