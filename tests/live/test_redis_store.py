"""Faults of a Redis that holds the state: killed, paused, full, emptied, failed over, and answers that are lost."""

import multiprocessing
import os
import random
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import redis

from model.state.serialization import pack_state
from serve_app.doctor.redis import check_redis
from serve_app.errors import CorruptState, StoreConflict, StoreFull, StoreGone
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.opening import open_store
from serve_app.stores.redis.store import RedisRows
from serve_app.stores.state_store import StateStore
from tests.live.programs import LOOPBACK, free_ports, needs
from tests.live.redis import PROGRAM, RedisProgram
from tests.serve_app.running import eventually, problem, start_service
from tests.serve_app.stores.content import (
    append,
    append_for_ever,
    at,
    check_appended,
    incident,
    incident_ids,
    is_step,
    random_bytes,
    snapshots,
    states,
)
from tests.serve_app.stores.small_disk import mount_disk
from tests.serve_app.stores.test_steps import Session, busy_mesh
from tests.serve_app.stores.test_store_service import document, push
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(300),
    needs(PROGRAM),
]
SHORT = 1.0 * TIME_FACTOR  # s: how long a call waits for a Redis that is away
T = TypeVar("T")
OPENSSL = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=here"]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[RedisProgram]:
    with run(tmp_path / "redis") as started:
        yield started


@contextmanager
def run(folder: Path, *options: str, **others: Any) -> Iterator[RedisProgram]:
    """Run a Redis until the end of the block."""
    started = RedisProgram(folder, *options, **others)
    try:
        yield started
    finally:
        started.end()


@pytest.mark.parametrize("victim", ["redis", "both"])
@pytest.mark.parametrize("seed", range(3))
def test_no_acknowledged_write_is_lost_when_a_process_is_killed(program: RedisProgram, seed: int, victim: str) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    place = program.settings(timeout_seconds=SHORT)
    writer = context.Process(target=append_for_ever, args=(place, theirs))
    writer.start()
    theirs.close()
    stop, last = random.Random(seed).randint(5, 60), 0
    try:
        while last < stop:
            last = ours.recv()
        program.kill()
        if victim != "redis":
            writer.kill()
        while True:  # writes that were acknowledged before the kill; then StoreGone ends the writer
            last = ours.recv()
    except EOFError:
        pass
    finally:
        writer.kill()
        writer.join()
        ours.close()
    program.start()
    check_appended(program.settings(), last)


def test_a_writer_survives_many_restarts_of_redis(program: RedisProgram) -> None:
    """Each write is repeated until it is stored, and stored once: each one names the revision before it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    place = program.settings(timeout_seconds=PATIENCE_SECONDS)
    writer = context.Process(target=append_for_ever, args=(place, theirs))
    writer.start()
    theirs.close()
    choose, last = random.Random(0), 0
    try:
        for _ in range(8):
            stop = last + choose.randint(5, 40)
            while last < stop:
                assert ours.poll(PATIENCE_SECONDS), "the writer stopped"
                last = ours.recv()
            program.kill()
            program.start()
        stop = last + 5
        while last < stop:
            assert ours.poll(PATIENCE_SECONDS), "the writer stopped"
            last = ours.recv()
    finally:
        writer.kill()
        writer.join()
    try:
        while True:
            last = ours.recv()
    except EOFError:
        ours.close()
    check_appended(program.settings(), last)


class Proxy:
    """A proxy in front of a Redis. It can close a connection in place of the next answer to a large request."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._meanwhile: Callable[[], object] | None = None
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_an_answer(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Lose the answer to the next append; call ``meanwhile`` once the server has done it."""
        self._meanwhile = meanwhile

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection((LOOPBACK, self._target)) as server:
            losing = threading.Event()
            threading.Thread(target=self._send_answers, args=(server, client, losing), daemon=True).start()
            with suppress(OSError):  # closed by the other thread
                while request := client.recv(2**16):
                    if self._meanwhile is not None and b"state 2" in request:
                        losing.set()
                    server.sendall(request)

    def _send_answers(self, server: socket.socket, client: socket.socket, losing: threading.Event) -> None:
        with suppress(OSError):
            while answer := server.recv(2**16):
                meanwhile = self._meanwhile
                if losing.is_set() and meanwhile is not None:
                    self._meanwhile = None
                    self.lost += 1
                    meanwhile()
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(answer)


def test_a_write_whose_answer_is_lost_is_stored_once(program: RedisProgram) -> None:
    with closing(Proxy(program.port)) as proxy:
        place = program.settings(url=f"redis://{LOOPBACK}:{proxy.port}/0")
        with closing(open_store(place)) as store:
            first = append(store, 1)
            proxy.lose_an_answer()
            second = append(store, 2, revision=first)
            assert proxy.lost == 1
            stored = store.load("prod")
            assert stored is not None
            assert (stored.revision, stored.sequence) == (second, 2)
            assert append(store, 3, revision=second) > second
            assert snapshots(store) == [b"snapshot 1", b"snapshot 2", b"snapshot 3"]


def test_a_write_whose_answer_is_lost_and_that_another_followed_is_a_conflict(program: RedisProgram) -> None:
    with closing(Proxy(program.port)) as proxy, closing(open_store(program.settings())) as other:
        place = program.settings(url=f"redis://{LOOPBACK}:{proxy.port}/0")
        with closing(open_store(place)) as store:
            first = append(store, 1)
            proxy.lose_an_answer(lambda: append(other, 3))
            with pytest.raises(StoreConflict, match="stored sequence 3"):
                append(store, 2, revision=first)
            assert (proxy.lost, snapshots(store)) == (1, [b"snapshot 1", b"snapshot 2", b"snapshot 3"])


def test_a_paused_redis_is_503_and_a_repeated_push_has_the_same_verdict(program: RedisProgram, tmp_path: Path) -> None:
    """The write may be done after its client gave up. The state afterwards is the same to the bit."""
    settings = Settings()
    with (
        closing(open_store(program.settings(timeout_seconds=SHORT))) as store,
        closing(open_store(StoreSettings(path=tmp_path / "local"))) as local,
    ):
        ours, theirs = Session(store, settings), Session(local, settings)
        for i, snapshot in enumerate(islice(busy_mesh(40), 30)):
            if i in (3, 15, 25):
                program.pause()
                with pytest.raises(StoreGone, match="expected an answer within") as caught:
                    ours.push(snapshot)
                assert caught.value.details["retry_after_seconds"] > 0
                program.resume()
            assert repeat(partial(ours.push, snapshot)) == theirs.push(snapshot)
            if i % 7 == 0:
                repeat(ours.tidy)
        assert_same_state(Session(store, settings), Session(local, settings))


def repeat(call: Callable[[], T]) -> T:
    """Call again until the Redis answers."""
    incident_ids: list[T] = []

    def answers() -> bool:
        with suppress(StoreGone):
            incident_ids.append(call())
        return bool(incident_ids)

    assert eventually(answers)
    return incident_ids[0]


def assert_same_state(one: Session, other: Session) -> None:
    ours, theirs = one.meshes.get("prod").mesh.state, other.meshes.get("prod").mesh.state
    assert pack_state(ours) == pack_state(theirs)
    assert [snapshot.digest for snapshot in ours.window] == [snapshot.digest for snapshot in theirs.window]
    assert ours.sequence == 30


def test_a_redis_that_is_away_is_not_waited_for_by_every_call(program: RedisProgram) -> None:
    with closing(StateStore(RedisRows(program.settings(timeout_seconds=SHORT)))) as store:
        assert isinstance(store.database, RedisRows)
        revision = append(store, 1)
        program.kill()
        with pytest.raises(StoreGone):
            append(store, 2)
        attempts = 0

        def count(*_: object) -> Any:
            nonlocal attempts
            attempts += 1
            raise redis.ConnectionError("still away")

        for _ in range(50):  # at once: the next attempt is not due
            with pytest.raises(StoreGone, match=r"start Redis, or correct store\.url"):
                store.database._server.call(count)
        assert attempts < 50
        program.start()
        repeat(lambda: append(store, 2, revision=revision))
        assert snapshots(store) == [b"snapshot 1", b"snapshot 2"]


def fill(store: Any) -> int:
    """Append until there is no room. Return the number of the last stored snapshot."""
    for sequence in range(1, 1000):
        try:
            append(store, sequence, mesh="large", keep=1000, snapshot=os.urandom(100_000), incidents=(incident(1),))
        except StoreFull as error:
            return sequence - 1 if "nothing was changed; raise maxmemory" in str(error) else 0
    raise AssertionError("the Redis never became full")


def test_a_full_redis_changes_nothing_and_is_still_read(tmp_path: Path) -> None:
    with (
        run(tmp_path, "--maxmemory", "12mb", "--maxmemory-policy", "noeviction") as program,
        closing(open_store(program.settings())) as store,
    ):
        append(store, 1, mesh="other")
        kept = fill(store)
        assert kept > 20
        stored = store.load("large")
        assert stored is not None
        assert stored.sequence == len(snapshots(store, "large")) == len(store.verdicts("large", None, 9999)) == kept
        for refused in (
            lambda: append(store, 2, mesh="other", snapshot=random_bytes(2, 10**6)),
            lambda: append(store, 1, mesh="new"),
            lambda: store.replace("large", b"state", revision=stored.revision),
        ):
            with pytest.raises(StoreFull):
                refused()
        assert [one.mesh for one in store.meshes()] == ["large", "other"]
        assert store.delete("large")
        append(store, 2, mesh="other", snapshot=random_bytes(2, 10**6))
        append(store, 1, mesh="new")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    with mount_disk(tmp_path / "disk", 4 * 2**20) as folder:
        yield folder


def test_a_redis_with_a_full_disk_refuses_writes_until_there_is_space(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(2**20))
    with run(disk / "redis", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0") as program:
        with closing(open_store(program.settings())) as store:
            kept = fill(store)
            assert kept > 3
            stored = store.load("large")
            assert stored is not None
            assert stored.sequence == kept
            assert {one.outcome for one in check_redis(program.settings()) if one.subject == "persistence"} == {
                "problem"
            }
            ballast.unlink()
            assert eventually(lambda: _accepts(store, kept + 1))  # the Redis tries again every second
        program.kill()
        program.start()
        with closing(open_store(program.settings())) as store:
            assert len(snapshots(store, "large")) == kept + 1


def _accepts(store: Any, sequence: int) -> bool:
    try:
        append(store, sequence, mesh="large", keep=1000, snapshot=b"small")
    except StoreFull:
        return False
    return True


def test_an_emptied_redis_is_503_until_its_data_is_back(program: RedisProgram) -> None:
    with closing(open_store(program.settings(timeout_seconds=PATIENCE_SECONDS))) as store:
        revision = append(store, 1, incidents=(incident(1),))
        program.kill()
        for path in program.folder.iterdir():
            path.rename(program.folder.parent / path.name)
        program.start()
        calls: list[Callable[[], object]] = [
            lambda: append(store, 2, revision=revision),
            lambda: append(store, 1, mesh="new"),
            lambda: store.replace("prod", b"state", revision=revision),
            lambda: store.read_document("rollout"),
            lambda: store.write_document("rollout", b"x", revision=0),
            lambda: store.load("prod"),
            lambda: store.load_state("prod"),
            lambda: list(store.window("prod")),
            lambda: store.verdicts("prod", None, 1),
            lambda: store.verdict_at("prod", at(1)),
            store.meshes,
            lambda: store.delete("prod"),
        ]
        for call in calls:
            with pytest.raises(StoreGone, match="emptied or replaced"):
                call()
        with closing(program.client()) as hand:
            assert hand.keys() == [], "nothing was written to the other Redis"
        with closing(open_store(program.settings())) as restarted:
            append(restarted, 1)  # a new run of the service starts with what is there
            with pytest.raises(StoreGone, match="got the data of store"):
                store.load("another")
        program.kill()
        shutil.rmtree(program.folder)
        program.folder.mkdir()
        for name in ("appendonlydir", "output.log"):
            if (program.folder.parent / name).exists():
                (program.folder.parent / name).rename(program.folder / name)
        program.start()
        append(store, 2, revision=revision)
        assert incident_ids(store) == ["incident-1"]


def test_lost_writes_are_logged(program: RedisProgram, caplog: pytest.LogCaptureFixture) -> None:
    """A Redis without its last writes, as after a power failure, or a failover."""
    with closing(open_store(program.settings())) as store, closing(program.client()) as hand:
        append(store, 1)
        kept = {key: hand.dump(key) for key in hand.keys("*:{prod}:*")}
        revision = append(store, 2)
        for key, dumped in kept.items():
            hand.restore(key, 0, dumped, replace=True)
        with pytest.raises(StoreConflict):
            append(store, 3, revision=revision)
        assert "the store has lost writes" in caplog.text
        append(store, 2)


def test_a_damaged_mesh_is_set_aside_and_other_meshes_still_work(
    program: RedisProgram, caplog: pytest.LogCaptureFixture
) -> None:
    """What is done with damage of each kind is tested with the local store."""
    with closing(open_store(program.settings())) as store, closing(program.client()) as hand:
        for mesh in ("prod", "other"):
            for sequence in (1, 2):
                append(store, sequence, mesh=mesh, is_step=is_step(sequence))
        hand.hset("tagae:{prod}:rows", "snapshot/000000000001", "3")
        with pytest.raises(CorruptState, match=r"prod.*set aside and starts learning again") as caught:
            snapshots(store)
        assert caught.value.details["mesh"] == "prod"
        assert "mesh 'prod' was set aside" in caplog.text
        assert store.load("prod") is None
        assert [(m.mesh, m.sequence) for m in store.meshes()] == [("other", 2)]
        append(store, 1)
        assert hand.hget("tagae:{prod}:rows", "aside/snapshot/000000000001") == b"3", "no data was deleted"
        assert store.delete("prod")
        assert hand.keys("tagae:{prod}:*") == []


def test_a_name_that_was_entered_and_never_used_takes_no_room(program: RedisProgram) -> None:
    """A process that dies before the first write leaves a name behind."""
    with closing(open_store(program.settings(), max_meshes=1)) as store, closing(program.client()) as hand:
        assert store.meshes() == []
        hand.hset("tagae:{STORE}:rows", "mesh/gone", "writer")
        hand.zadd("tagae:{STORE}:keys", {"mesh/gone": 0})
        append(store, 1)
        assert [one.mesh for one in store.meshes()] == ["prod"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on PATH to make a certificate with")
def test_tls_and_a_password_from_a_file(tmp_path: Path) -> None:
    key, certificate, secret = tmp_path / "key.pem", tmp_path / "certificate.pem", tmp_path / "password"
    subprocess.run(
        [*OPENSSL, "-addext", f"subjectAltName=IP:{LOOPBACK}", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    secret.write_text("open sesame\n")
    (secure,) = free_ports(1)
    options = f"--tls-port {secure} --tls-cert-file {certificate} --tls-key-file {key} --tls-auth-clients no"
    with run(tmp_path / "redis", *options.split(), "--tls-ca-cert-file", str(certificate)) as program:
        with closing(program.client()) as hand:
            hand.config_set("requirepass", "open sesame")
        place = program.settings(url=f"rediss://{LOOPBACK}:{secure}/0", timeout_seconds=2 * SHORT)
        right = place.model_copy(update={"ca_file": certificate, "password_file": secret})
        with closing(open_store(right.model_copy(update={"timeout_seconds": PATIENCE_SECONDS}))) as store:
            append(store, 1)
            assert snapshots(store) == [b"snapshot 1"]
        for wrong, why in (
            ({"ca_file": None}, "certificate verify failed"),
            ({"password_file": None}, "Authentication required"),
            ({"password_file": tmp_path / "missing"}, "cannot read"),
        ):
            refused = open_store(right.model_copy(update=wrong))
            with closing(refused), pytest.raises(StoreGone, match=why):
                refused.load("prod")
        secret.write_text("wrong\n")
        with closing(open_store(right)) as refused, pytest.raises(StoreGone, match=r"correct store\.password_file"):
            refused.load("prod")


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with run(tmp_path / "redis", "--unixsocket", str(path)) as program:
        place = program.settings(url=f"unix://{path}?db=3")
        with closing(open_store(place)) as store, closing(redis.Redis(LOOPBACK, program.port, 3)) as hand:
            append(store, 1)
            assert hand.exists("tagae:{prod}:rows")


def test_a_failover_by_sentinel(tmp_path: Path) -> None:
    with run(tmp_path / "one") as one, run(tmp_path / "two", "--replicaof", f"{LOOPBACK} {one.port}") as two:
        with closing(two.client()) as hand:
            assert eventually(lambda: hand.info("replication")["master_link_status"] == "up")
        (tmp_path / "three").mkdir()
        config = tmp_path / "three" / "sentinel.conf"
        config.write_text(
            f"sentinel monitor shop {LOOPBACK} {one.port} 1\nsentinel down-after-milliseconds shop 500\n"
            "sentinel failover-timeout shop 5000\n"
        )
        with run(tmp_path / "three", config=config) as sentinel:
            place = sentinel.settings(
                url=f"redis+sentinel://{LOOPBACK}:{sentinel.port}/shop", timeout_seconds=PATIENCE_SECONDS
            )
            with closing(open_store(place)) as store, closing(two.client()) as hand:
                revision = 0
                for sequence in range(1, 6):
                    revision = append(store, sequence, revision=revision)
                assert eventually(lambda: hand.hexists("tagae:{prod}:rows", "snapshot/000000000005"))
                with closing(redis.Redis(LOOPBACK, sentinel.port)) as asked:
                    assert eventually(lambda: asked.execute_command("SENTINEL", "REPLICAS", "shop"))
                one.kill()
                append(store, 6, revision=revision)  # waits for the failover
                assert hand.info("replication")["role"] == "master"
                assert snapshots(store) == [b"snapshot 4", b"snapshot 5", b"snapshot 6"]


def is_whole(hand: Any) -> bool:
    return b"cluster_state:ok" in hand.execute_command("CLUSTER", "INFO")


def test_a_cluster(tmp_path: Path) -> None:
    options, buses = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000"), free_ports(2)
    with (
        run(tmp_path / "one", *options, "--cluster-port", str(buses[0])) as one,
        run(tmp_path / "two", *options, "--cluster-port", str(buses[1])) as two,
        closing(one.client()) as first,
        closing(two.client()) as second,
    ):
        first.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 8000)
        second.execute_command("CLUSTER", "ADDSLOTSRANGE", 8001, 16383)
        second.execute_command("CLUSTER", "SET-CONFIG-EPOCH", 2)
        first.execute_command("CLUSTER", "MEET", LOOPBACK, two.port, buses[1])
        for hand in (first, second):
            assert eventually(partial(is_whole, hand))
        place = one.settings(url=f"redis+cluster://{LOOPBACK}:{one.port},{LOOPBACK}:{two.port}")
        with closing(open_store(place)) as store:
            names = [f"mesh-{number}" for number in range(12)]
            for name in names:
                revision = append(store, 1, mesh=name, incidents=(incident(1),))
                append(store, 2, mesh=name, revision=revision, is_step=True)
            assert [one.mesh for one in store.meshes()] == sorted(names)
            assert all(states(store, name) == {1: b"state 1", 2: b"state 2"} for name in names)
            assert min(hand.dbsize() for hand in (first, second)) > 4, "both nodes have some"
            assert store.delete("mesh-0")
            assert [finding.outcome for finding in check_redis(place)] == ["ok"] * 6


def test_the_doctor_checks_what_survives(tmp_path: Path) -> None:
    with run(tmp_path) as program, closing(program.client()) as hand:

        def outcomes() -> dict[str, tuple[str, str]]:
            return {one.subject: (one.outcome, one.found) for one in check_redis(program.settings())}

        incident_ids = outcomes()
        assert {subject: outcome for subject, (outcome, _) in incident_ids.items()} == {
            "store": "ok",
            "persistence": "ok",
            "memory": "ok",
        }
        assert "lose" not in incident_ids["persistence"][1]
        hand.config_set("appendfsync", "everysec")
        incident_ids = outcomes()
        assert incident_ids["persistence"][0] == "ok"
        assert "up to two seconds of verdicts" in incident_ids["persistence"][1]
        hand.config_set("appendfsync", "no")
        assert outcomes()["persistence"][0] == "warning"
        hand.config_set("appendonly", "no")
        assert "restarting Redis loses all meshes" in outcomes()["persistence"][1]
        hand.config_set("maxmemory", "1gb")
        hand.config_set("maxmemory-policy", "allkeys-lru")
        assert outcomes()["memory"][0] == "warning"
        hand.config_set("maxmemory-policy", "noeviction")
        assert outcomes()["memory"][0] == "ok"
        program.kill()
        (finding,) = check_redis(program.settings(timeout_seconds=SHORT))
        assert (finding.subject, finding.outcome) == ("store", "problem")
        assert "Connection refused" in finding.found


@pytest.mark.ray
def test_a_service_answers_503_while_redis_is_away_and_loses_nothing(program: RedisProgram) -> None:
    settings = (
        "store.kind=redis",
        f"store.url={program.url}",
        "scorer.device=cpu",
        f"store.timeout_seconds={2 * SHORT}",
    )
    chosen = [word for setting in settings for word in ("--set", setting)]
    with (
        start_service("--port", "0", *chosen) as (_, url),
        httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http,
    ):
        for sequence in (1, 2):
            answer = push(http, "shop", sequence)
            assert (answer.status_code, answer.json()["sequence"]) == (200, sequence)
        program.kill()
        answers = [
            push(http, "shop", 3),
            http.post("/v1/meshes/new/baseline", json=document(4)),
            http.get("/v1/meshes/shop/verdict"),
            http.get("/v1/meshes"),
            http.get("/readyz"),
        ]
        for answer in answers:
            assert "start Redis" in problem(answer, 503, "store-gone")["detail"]
            assert int(answer.headers["retry-after"]) > 0
        assert http.get("/healthz").status_code == 200
        program.start()
        assert eventually(lambda: http.get("/readyz").status_code == 200)
        # Each session notices within a second that the Redis is back.
        assert eventually(lambda: push(http, "shop", 3).status_code == 200)
        answer = push(http, "shop", 3)
        assert (answer.status_code, answer.json()["sequence"]) == (200, 3)  # stored once
        assert push(http, "shop", 4).json()["sequence"] == 4
        assert http.delete("/v1/meshes/shop").status_code == 204
