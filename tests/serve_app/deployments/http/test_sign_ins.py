"""The sign-ins that ended, as one replica of the ingress knows them."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from serve_app.access import Access, Rules
from serve_app.access.oidc.rules import OidcRules
from serve_app.access.sign_ins import SignedInUser
from serve_app.deployments.http.sign_ins import open_sign_ins
from serve_app.settings import Settings
from serve_app.stores.documents import EndedIds
from tests.serve_app.stores.local import local_store
from tests.timing import PATIENCE_SECONDS


class SlowReads:
    """A backend whose first read has its answer only after ``go_on``, or one more call."""

    def __init__(self, ended: EndedIds) -> None:
        self.settings = Settings()
        self.records = SimpleNamespace(sign_ins=ended)
        self.has_read, self.go_on = asyncio.Event(), asyncio.Event()

    async def ask(self, method: Callable[..., Any], *args: Any) -> Any:
        answer = method(*args)
        if not args:
            self.has_read.set()
            await self.go_on.wait()
        return answer


async def test_a_read_that_began_before_a_sign_out_does_not_undo_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-the-client-0123456789")
    rules = OidcRules("https://127.0.0.1:9", "tagae", secret, "https://mesh.example", {})
    access = Access(Rules(oidc=rules, external_url=rules.external_url))
    with closing(local_store(tmp_path)) as store:
        await _sign_out_during_a_read(access, SlowReads(EndedIds(store, lambda: 0.0)))
    assert access.ended_sign_ins == {"id-1"}


async def _sign_out_during_a_read(access: Access, backend: SlowReads) -> None:
    sign_ins = open_sign_ins(access, backend)  # type: ignore[arg-type]
    assert sign_ins is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        following = asyncio.create_task(sign_ins.follow())
        await backend.has_read.wait()
        ending = asyncio.create_task(sign_ins.sign_on.end(SignedInUser("id-1", "u-1", "ada", (), 60), ""))
        await asyncio.sleep(0)
        backend.go_on.set()
        await asyncio.gather(following, ending)
