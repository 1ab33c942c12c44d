"""Sign-ins at an OpenID provider, in one ingress replica."""

import asyncio
import logging
import time

from serve_app.access import Access
from serve_app.access.oidc.rules import OidcRules
from serve_app.access.sign_ins import SignInCookies
from serve_app.deployments.http.backend import Backend, SingleFlight
from serve_app.errors import ServeError
from serve_app.runtime.replica import start_task

FOLLOW_SECONDS = 2.0  # time between two reads of ended sign-ins
IDLE_SECONDS = 660.0  # reading ends after this time without a signed-in user's request; longer than a stream lasts
SHARE_OF_DEADLINE = 0.8  # for the provider, so that the answer reports its failure and not the gate's deadline
log = logging.getLogger(__name__)


class SignIns:
    """Signs users in and out, and follows sign-ins that end on other replicas.

    Args:
        access: the access rules; gets the ids of ended sign-ins.

    Raises:
        BadSettings: the client secret or the certificates cannot be used.
    """

    def __init__(self, access: Access, rules: OidcRules, cookies: SignInCookies, backend: Backend) -> None:
        self.rules, self.cookies = rules, cookies
        self._access, self._backend = access, backend
        self._used_at = 0.0
        self._follower: asyncio.Task[None] | None = None
        self._shared: SingleFlight[None] = SingleFlight()
        self._lock = asyncio.Lock()  # a read that began before a sign-out must not replace the newer ids
        seconds = SHARE_OF_DEADLINE * backend.settings.serve.deadline_seconds
        from serve_app.access.oidc.sign_on import SignOn  # needs the extra

        self.sign_on = SignOn(rules, seconds, self._end)

    async def follow(self) -> None:
        """Make sure, before a signed-in user's request, that the ids of ended sign-ins are known.

        Raises:
            ServeError: they have never been read, and the store is unavailable.
        """
        self._used_at = time.monotonic()
        if not self._is_following():
            await self._shared.do("ended", self._read)
            if not self._is_following():
                self._follower = start_task(self._keep_reading())

    def _is_following(self) -> bool:
        return self._follower is not None and not self._follower.done()

    async def _end(self, id: str, until: float) -> bool:
        async with self._lock:
            is_new = await self._backend.ask(self._backend.records.sign_ins.add, id, until)
            self._access.ended_sign_ins |= {id}
        return is_new

    async def _read(self) -> None:
        async with self._lock:
            self._access.ended_sign_ins = await self._backend.ask(self._backend.records.sign_ins.all)

    async def _keep_reading(self) -> None:
        while time.monotonic() - self._used_at < IDLE_SECONDS:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                await self._read()
            except ServeError as error:  # keep the known ids
                log.warning("sign-ins that ended could not be read: %s", error)


def open_sign_ins(access: Access, backend: Backend) -> SignIns | None:
    """Open sign-ins at the configured provider; None if there is none. Raises the errors of :class:`SignIns`."""
    if access.rules.oidc is None or access.sign_ins is None:
        return None
    return SignIns(access, access.rules.oidc, access.sign_ins, backend)
