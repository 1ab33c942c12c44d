"""The three kinds of this package fulfil TAGAE's contracts."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lab.contracts.receivers import ReceiverContract
from lab.contracts.sources import SourceContract
from lab.contracts.stores import StoreContract
from serve_app.settings import MeshSettings, StoreSettings
from serve_app.settings.alerting import ReceiverChoice

START = datetime(2026, 3, 1, 3, 14, tzinfo=UTC)


class TestStore(StoreContract):
    archived = 2_000  # each snapshot writes the whole archive

    @pytest.fixture
    def place(self, tmp_path: Path) -> StoreSettings:
        return StoreSettings(kind="files", options={"folder": str(tmp_path / "store")})

    @pytest.fixture
    def elsewhere(self, tmp_path: Path) -> StoreSettings:
        return StoreSettings(kind="files", options={"folder": str(tmp_path / "elsewhere")})


class TestSource(SourceContract):
    @pytest.fixture
    def instants(self) -> list[datetime]:
        return [START + timedelta(seconds=15 * number) for number in range(4)]

    @pytest.fixture
    def empty(self, instants: list[datetime]) -> datetime:
        return instants[-1] + timedelta(hours=1)

    @pytest.fixture
    def mesh(self, tmp_path: Path, instants: list[datetime]) -> MeshSettings:
        for number, at in enumerate(instants):
            service = {"id": "shop/cart", "request_rate": 10.0 + number, "error_rate": 0.01}
            document = {"observed_at": at.isoformat(), "services": [service], "calls": []}
            (tmp_path / f"{at.timestamp():.0f}.json").write_text(json.dumps(document))
        return MeshSettings(source="files", source_options={"folder": str(tmp_path)})


class TestReceiver(ReceiverContract):
    @pytest.fixture
    def choice(self, tmp_path: Path) -> ReceiverChoice:
        return ReceiverChoice(kind="file", options={"path": str(tmp_path / "events.jsonl")})

    @pytest.fixture
    def away(self, tmp_path: Path) -> ReceiverChoice:
        return ReceiverChoice(kind="file", options={"path": str(tmp_path / "missing" / "events.jsonl")})
