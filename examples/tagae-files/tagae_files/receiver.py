"""The receiver ``file``: each event is one line of JSON at the end of a file."""

import asyncio
import json
import os
from pathlib import Path

from pydantic import Field

from serve_app.alerts.alert import IncidentEvent
from serve_app.alerts.receivers.receiver import ReceiverPlugin
from serve_app.net.http import Reply
from serve_app.settings.base import Location, SettingsGroup


class FileOptions(SettingsGroup):
    """The table ``options`` of a receiver."""

    path: Location = Field(description="the file; its folder must exist")


class FileReceiver:
    """Appends events to a file.

    Args:
        options: from the settings.
        deadline_seconds: of one delivery.
    """

    kind = "file"

    def __init__(self, options: FileOptions, deadline_seconds: float) -> None:
        self._path: Path = options.path
        self._deadline_seconds = deadline_seconds
        self.name = str(options.path)
        self.key = f"file-{options.path}"

    async def deliver(self, event: IncidentEvent) -> Reply:
        """Append an event. After a crash it may be there twice, with the same id."""
        line = json.dumps({"id": event.id, **event.document}) + "\n"
        try:
            async with asyncio.timeout(self._deadline_seconds):
                await asyncio.to_thread(self._append, line)
        except TimeoutError:
            return Reply("late", detail=f"not written within {self._deadline_seconds:g} s")
        except OSError as error:
            return Reply("failed", detail=str(error))
        return Reply()

    async def check(self) -> Reply:
        """Say whether the folder of the file can be written to."""
        folder = self._path.parent
        is_writable = await asyncio.to_thread(os.access, folder, os.W_OK)
        return Reply() if is_writable else Reply("failed", detail=f"expected a writable folder {folder}")

    async def close(self) -> None:
        """The file is open only during a delivery."""

    def _append(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)


FILE = ReceiverPlugin(options=FileOptions, open=FileReceiver)
