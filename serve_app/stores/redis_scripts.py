"""The Lua scripts of ``lua/``: one for each step that must be done at once."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from redis.exceptions import NoScriptError

from serve_app.stores.redis_server import Client

_FOLDER = Path(__file__).with_name("lua")
_OF_THE_STORE = ("identify", "reserve", "release", "write_document")
_OF_ALERTS = ("claim_alerts", "write_alerts")
_OF_LEASES = ("hold_lease", "end_lease")  # the others change the state of one mesh, and share common.lua


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, and the digest by which a server knows it."""

    text: str
    digest: str

    @classmethod
    def of(cls, text: str) -> Self:
        """The script with this text."""
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

    def run(self, client: Client, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run it and return its answer."""
        try:
            return client.evalsha(self.digest, len(keys), *keys, *arguments)
        except NoScriptError:  # the first call since the server started
            return client.eval(self.text, len(keys), *keys, *arguments)


def load_scripts() -> dict[str, Script]:
    """All scripts by name."""
    common = (_FOLDER / "common.lua").read_text("utf-8")
    texts = {path.stem: path.read_text("utf-8") for path in _FOLDER.glob("*.lua") if path.stem != "common"}
    return {
        name: Script.of(text if name in _OF_THE_STORE + _OF_ALERTS + _OF_LEASES else common + text)
        for name, text in texts.items()
    }
