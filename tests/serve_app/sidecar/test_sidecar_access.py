"""The service in one process with tokens and TLS: gRPC. Over HTTP, the gate is the one that test_access.py tests."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lab.simulator.mesh.topology import MeshSpec
from serve_app.access import Scope, editing
from serve_app.sidecar.generated.verdicts_pb2 import LatestRequest, WatchRequest
from serve_app.sidecar.generated.verdicts_pb2_grpc import VerdictsStub
from serve_app.sidecar.service import peer_host
from tests.builders import write_certificate
from tests.serve_app.running import record_simulation
from tests.serve_app.sidecar.beside import SECONDS, message, open_client, start_sidecar

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SNAPSHOTS = record_simulation(MeshSpec(services=20, calls_per_service=3.0, seed=4), 6)
UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


@dataclass(frozen=True, slots=True)
class Guarded:
    """A sidecar with tokens and TLS.

    Attributes:
        address: of its port.
        socket: path, without TLS.
        certificate: that clients trust.
        file: with the hashes of tokens.
        tokens: by name.
    """

    address: str
    socket: Path
    certificate: Path
    file: Path
    tokens: dict[str, str]

    @contextmanager
    def asking(self) -> Iterator[VerdictsStub]:
        with grpc.secure_channel(self.address, self.trust()) as channel:
            yield VerdictsStub(channel)

    def trust(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.certificate.read_bytes())

    def options(self, token: str) -> dict[str, Any]:
        metadata = (("authorization", f"Bearer {self.tokens.get(token, token)}"),) if token else ()
        return {"timeout": SECONDS, "metadata": metadata}


@pytest.fixture(scope="module")
def guarded_sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    file, socket = folder / "tokens.toml", folder / "verdicts.sock"
    certificate, key = write_certificate(folder)
    tokens = {
        "reader": editing.create(file, "reader", [Scope.READ]),
        "writer": editing.create(file, "writer", [Scope.WRITE], ["mesh"]),
        "other": editing.create(file, "other", [Scope.READ, Scope.WRITE], ["other"]),
        "leaving": editing.create(file, "leaving", [Scope.READ]),
    }
    settings = {
        "store.path": str(folder / "state"),
        "serve.tokens_file": str(file),
        "serve.certificate_file": str(certificate),
        "serve.key_file": str(key),
    }
    with start_sidecar(socket=socket, settings=settings) as sidecar:
        yield Guarded(sidecar.address, socket, certificate, file, tokens)


def code(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    found: grpc.StatusCode = caught.value.code()
    return found


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:50000", "127.0.0.1"),
        ("ipv6:%5B::1%5D:50000", "::1"),
        ("ipv6:[2001:db8::1]:50000", "2001:db8::1"),
        ("unix:/run/x.sock", "127.0.0.1"),
    ],
)
def test_peers_have_addresses(peer: str, host: str) -> None:
    assert peer_host(peer) == host


def test_each_method_asks_for_a_token_with_its_scope(guarded_sidecar: Guarded) -> None:
    with open_client(f"unix:{guarded_sidecar.socket}") as near:
        assert code(lambda: near.Push(message(SNAPSHOTS[0]), timeout=SECONDS)) is UNAUTHENTICATED
        first = near.Push(message(SNAPSHOTS[0]), **guarded_sidecar.options("writer"))
    with guarded_sidecar.asking() as ask:
        snapshot = message(SNAPSHOTS[1])
        for token, expected in (("", UNAUTHENTICATED), ("tagae_wrong", UNAUTHENTICATED), ("other", DENIED)):
            output = guarded_sidecar.options(token)
            assert code(partial(ask.Latest, LatestRequest(), **output)) is expected
            assert code(partial(ask.Push, snapshot, **output)) is expected
            assert code(partial(next, ask.Watch(WatchRequest(), **output))) is expected
        assert code(lambda: ask.Push(snapshot, **guarded_sidecar.options("reader"))) is DENIED
        assert code(lambda: ask.Latest(LatestRequest(), **guarded_sidecar.options("writer"))) is DENIED
        assert ask.Latest(LatestRequest(), **guarded_sidecar.options("reader")) == first, "no request was counted"
        second = ask.Push(snapshot, **guarded_sidecar.options("writer"))
        assert second.sequence == first.sequence + 1
        assert next(ask.Watch(WatchRequest(), **guarded_sidecar.options("reader"))) == second
        twice = (
            *guarded_sidecar.options("reader")["metadata"],
            *guarded_sidecar.options("reader")["metadata"],
        )
        assert code(lambda: ask.Latest(LatestRequest(), timeout=SECONDS, metadata=twice)) is UNAUTHENTICATED


def test_health_needs_no_token_and_plain_text_is_refused(guarded_sidecar: Guarded) -> None:
    with grpc.secure_channel(guarded_sidecar.address, guarded_sidecar.trust()) as channel:
        checked = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=SECONDS)
        assert checked.status == health_pb2.HealthCheckResponse.SERVING
    with open_client(guarded_sidecar.address) as plain:
        failed = code(lambda: plain.Latest(LatestRequest(), **guarded_sidecar.options("reader")))
        assert failed is grpc.StatusCode.UNAVAILABLE


def test_a_watcher_whose_token_is_removed_gets_no_further_verdict(guarded_sidecar: Guarded) -> None:
    with guarded_sidecar.asking() as ask, open_client(f"unix:{guarded_sidecar.socket}") as near:
        near.Push(message(SNAPSHOTS[2]), **guarded_sidecar.options("writer"))
        watched = ask.Watch(WatchRequest(), **guarded_sidecar.options("leaving"))
        next(watched)
        editing.remove(guarded_sidecar.file, "leaving")
        asked = (ask.Latest(LatestRequest(), **guarded_sidecar.options("leaving")) for _ in count())
        with pytest.raises(grpc.RpcError) as caught:  # once the file is read again, within a second or two
            deque(asked, maxlen=0)
        assert caught.value.code() is UNAUTHENTICATED
        near.Push(message(SNAPSHOTS[3]), **guarded_sidecar.options("writer"))
        assert code(lambda: next(watched)) is UNAUTHENTICATED
