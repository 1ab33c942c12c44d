"""Settings for the HTTP server."""

import os
import re
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from serve_app.access.tokens import Scope
from serve_app.settings.base import HostName, Location, SettingsGroup
from serve_app.settings.oidc import OidcSettings

UNIX = "unix:"  # prefix of a socket's path
MAX_SOCKET_BYTES = 107  # sun_path on Linux, without the terminating zero


def _check_grpc(address: str) -> str:
    path = address.removeprefix(UNIX)
    if path != address:
        if len(os.fsencode(path)) > MAX_SOCKET_BYTES:
            raise ValueError(f"the path is too long: a Unix socket's limit is {MAX_SOCKET_BYTES} bytes")
    elif not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\s]+):\d{1,5}", address):
        raise ValueError(f"expected HOST:PORT or unix:PATH, got {address!r}")
    return address


KEEP_ALIVE_SECONDS = 75  # until an idle connection is closed; longer than common proxies and clients wait


class ServeSettings(SettingsGroup):
    """The HTTP server and its replicas."""

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0: a free one")
    grpc: tuple[Annotated[str, AfterValidator(_check_grpc)], ...] = Field(
        ("127.0.0.1:9091",),
        description="gRPC addresses of `tagae serve --single`: HOST:PORT, where port 0 is a free one, or unix:PATH, a "
        "socket for owner and group",
    )
    metrics_port: int = Field(
        0, ge=0, le=65535, description="port for Ray's and TAGAE's metrics, on a single machine; 0: a free one"
    )
    deadline_seconds: float = Field(5.0, gt=0, description="deadline of a request; unfinished work is dropped")
    ingress_replicas: int = Field(
        2, ge=1, description="replicas of the HTTP server; with two, requests are answered while one restarts"
    )
    max_ingress_replicas: int | None = Field(
        None, ge=1, description="autoscaling limit for ingress_replicas; none: no autoscaling"
    )
    session_replicas: int = Field(
        2, ge=1, description="replicas that hold meshes; with two, meshes are available while one restarts"
    )
    max_session_replicas: int | None = Field(
        None, ge=1, description="autoscaling limit for session_replicas; none: no autoscaling"
    )
    target_requests: float = Field(
        1.0,
        gt=0,
        description="target of autoscaling: mean number of concurrent requests per session or ingress replica; open "
        "pages do not count",
    )
    downscale_seconds: float = Field(
        300.0, ge=0, description="duration of lower load after which autoscaling removes replicas"
    )
    max_ongoing_requests: int = Field(
        200, ge=1, description="concurrent requests per replica; Serve's default of 5 is too low for streams"
    )
    max_streams: int = Field(
        64, ge=0, description="concurrent verdict streams to open pages, per ingress replica; more get 429"
    )
    session_memory_bytes: int = Field(
        512 * 2**20,
        ge=0,
        description="memory for meshes and weights per session replica; further meshes are read from the store for "
        "each snapshot",
    )
    tokens_file: Location | None = Field(
        None,
        description="file with hashes of access tokens (`tagae token create`); none: no login, for loopback only",
    )
    allow_anonymous: bool = Field(
        False, description="serve a network without login: anyone who can connect can read, push and delete"
    )
    allowed_hosts: tuple[HostName, ...] = Field(
        (),
        description="further host names of this service; IP addresses, localhost and external_url are always allowed",
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = Field(
        (), description="networks of proxies that authenticate users, such as 10.0.0.7/32"
    )
    proxy_user_header: str | None = Field(
        None,
        pattern="^[A-Za-z0-9-]+$",
        description="header in which these proxies name the user, such as X-Forwarded-User",
    )
    proxy_user_scopes: tuple[Scope, ...] = Field(
        (Scope.READ, Scope.WRITE),
        min_length=1,
        description="permissions of users from these proxies: read, write, admin",
    )
    oidc: OidcSettings | None = Field(None, description="sign-in at an OpenID provider; needs notify.external_url")
    certificate_file: Location | None = Field(
        None, description="certificate chain (PEM); with key_file, the service uses HTTPS"
    )
    key_file: Location | None = Field(None, description="private key of the certificate (PEM)")

    @property
    def max_queued_requests(self) -> int:
        """Requests that may wait for a replica; further ones get 429. Beyond twice the concurrent requests, they would
        be late."""
        return 2 * self.max_ongoing_requests

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("expected certificate_file and key_file, got one of them; set both or neither")
        if self.proxy_user_header and not self.trusted_proxies:
            raise ValueError("proxy_user_header: trusted_proxies is missing; without it, anyone could send this header")
        if self.allow_anonymous and (self.tokens_file or self.proxy_user_header or self.oidc):
            raise ValueError(
                "expected allow_anonymous, or tokens_file, proxy_user_header and oidc, got both; choose one"
            )
        return self
