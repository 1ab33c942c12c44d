"""The three plugins of this package fulfil TAGAE's contracts."""

from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest

from lab.contracts.receivers import ReceiverContract
from lab.contracts.sources import SourceContract
from lab.contracts.stores import StoreContract
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot
from serve_app.api.codec import encode_snapshot
from serve_app.settings import MeshSettings, StoreSettings
from serve_app.settings.alerting import ReceiverChoice


class TestStore(StoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> StoreSettings:
        return StoreSettings(kind="files", options={"folder": str(tmp_path / "store")})


class TestSource(SourceContract):
    @pytest.fixture
    def snapshots(self) -> list[MeshSnapshot]:
        return list(islice(Simulator(MeshSpec(services=20, calls_per_service=2)).snapshots(), 4))

    @pytest.fixture
    def instants(self, snapshots: list[MeshSnapshot]) -> list[datetime]:
        return [snapshot.observed_at for snapshot in snapshots]

    @pytest.fixture
    def empty(self, instants: list[datetime]) -> datetime:
        return instants[-1] + timedelta(hours=1)

    @pytest.fixture
    def mesh(self, tmp_path: Path, snapshots: list[MeshSnapshot]) -> MeshSettings:
        for snapshot in snapshots:
            (tmp_path / f"{snapshot.observed_at.timestamp():.0f}.json").write_bytes(encode_snapshot(snapshot))
        return MeshSettings(source="files", source_options={"folder": str(tmp_path)})


class TestReceiver(ReceiverContract):
    @pytest.fixture
    def choice(self, tmp_path: Path) -> ReceiverChoice:
        return ReceiverChoice(kind="file", options={"path": str(tmp_path / "events.jsonl")})

    @pytest.fixture
    def away(self, tmp_path: Path) -> ReceiverChoice:
        return ReceiverChoice(kind="file", options={"path": str(tmp_path / "missing" / "events.jsonl")})
