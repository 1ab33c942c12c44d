"""The Redis of the manifests, and the commands of docs/cluster.md that back it up and restore it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from serve_app.doctor.redis import check_redis
from serve_app.settings import StoreSettings
from serve_app.stores.opening import open_store
from tests.cluster.pods import quantity
from tests.cluster.redis_pod import CONTAINER, PASSWORD, RedisPod
from tests.cluster.rendering import CLUSTER, SEARCHED
from tests.cluster.schemas import ROOT
from tests.live.programs import LOOPBACK, find_program, free_ports
from tests.live.redis import PROGRAM
from tests.serve_app.stores.content import append, contents

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(find_program(PROGRAM) is None, reason="redis-server is not here"),
]


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[RedisPod]:
    started = RedisPod(tmp_path)
    try:
        yield started
    finally:
        started.program.end()


def test_it_needs_the_password_and_does_not_show_it(pod: RedisPod) -> None:
    with closing(pod.client(None)) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    words = Path(f"/proc/{pod.program.pid}/cmdline").read_bytes()
    assert PASSWORD.encode() not in words
    assert b"redis-server" in words, "the first process of the container, so that it gets the signal to end"


def test_a_kill_loses_nothing(pod: RedisPod) -> None:
    with closing(pod.client()) as client:
        client.set("key", "value")
    pod.program.kill()
    pod.start()
    with closing(pod.client()) as client:
        assert client.get("key") == b"value"


def test_doctor_finds_nothing_to_correct(pod: RedisPod) -> None:
    found = {finding.subject: finding for finding in check_redis(settings_of(pod))}
    assert {one.outcome for one in found.values()} == {"ok"}
    assert found["persistence"].found == "append-only file, appendfsync always"
    assert found["memory"].found.endswith("maxmemory 1,024 MiB, policy noeviction")


def test_its_memory_and_its_volume_have_room_to_rewrite_its_file() -> None:
    limit = CONTAINER["resources"]["limits"]["memory"]
    (claim,) = CLUSTER.one("StatefulSet")["spec"]["volumeClaimTemplates"]
    size = claim["spec"]["resources"]["requests"]["storage"]
    assert "maxmemory 1gb" in CLUSTER.one("ConfigMap")["data"]["redis.conf"]
    assert quantity(limit) >= 1.5 * 2**30
    assert quantity(size) >= 2 * 2**30


def settings_of(pod: RedisPod) -> StoreSettings:
    return StoreSettings(kind="redis", url=f"redis://{LOOPBACK}:{pod.port}/1", password_file=pod.folder / "password")


def blocks(word: str) -> list[str]:
    page = (ROOT / "docs" / "cluster.md").read_text("utf-8")
    return [text for text in re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if word in text]


def test_a_backup_is_restored_as_the_page_says(pod: RedisPod, tmp_path: Path) -> None:
    """Of the commands with kubectl, what runs in the pod runs here."""
    with closing(open_store(settings_of(pod))) as store:
        for sequence in range(1, 6):
            append(store, sequence, mesh="shop")
        before = contents(store, "shop")
    (backup,) = blocks("redis-cli --rdb")
    (inside,) = re.findall(r"sh -ec \\\n  '(.+)'$", backup, re.MULTILINE)
    copied = inside.replace("/data/backup.rdb", f"{tmp_path}/backup.rdb")
    subprocess.run(pod.here(["sh", "-ec", copied]), check=True, capture_output=True)
    with closing(pod.client()) as client:
        client.flushall()
    (restore,) = blocks("tagae store copy")
    commands = restore.replace("kubectl -n tagae delete rayservice tagae\n", "")
    other = str(free_ports(1)[0])
    commands = commands.replace("6390", other).replace("127.0.0.1:6379", f"{LOOPBACK}:{pod.port}")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": SEARCHED}
    run = ["bash", "-euo", "pipefail", "-c", commands]
    subprocess.run(run, check=True, capture_output=True, cwd=tmp_path, env=environment)
    with closing(open_store(settings_of(pod))) as store:
        assert contents(store, "shop") == before
