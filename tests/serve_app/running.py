"""A service that tests talk to."""

from dataclasses import dataclass

import httpx

from serve_app.settings import Settings


@dataclass(frozen=True, slots=True)
class Service:
    """A running service."""

    url: str
    settings: Settings
    http: httpx.Client
