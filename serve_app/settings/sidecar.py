"""Settings of the sidecar."""

import os
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from serve_app.settings.base import HostName, Location, SettingsGroup

MOST_SOCKET_BYTES = 107  # sun_path on Linux, without the terminating zero


def _fits_an_address(path: Path) -> Path:
    if len(os.fsencode(path)) > MOST_SOCKET_BYTES:
        raise ValueError(f"expected at most {MOST_SOCKET_BYTES} bytes, the limit of a Unix socket's path")
    return path


class SidecarSettings(SettingsGroup):
    """The single process next to a workload (`tagae sidecar`)."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="address to listen on; outside loopback, tokens_file or allow_anonymous is required",
    )
    port: int = Field(9091, ge=0, le=65535, description="gRPC port; 0: a free one")
    socket: Annotated[Location, AfterValidator(_fits_an_address)] | None = Field(
        None, description="Unix socket for gRPC, for owner and group (mode 0660); none: the port only"
    )
    max_watchers: int = Field(64, ge=1, description="concurrent streams of verdicts")
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="port of /metrics for Prometheus; 0: a free one; none: no metrics"
    )
    tokens_file: Location | None = Field(
        None, description="file with hashes of access tokens, for the ports but not the socket; none: no login"
    )
    allow_anonymous: bool = Field(
        False, description="serve a network without login: anyone who can connect can read and push"
    )
    allowed_hosts: tuple[HostName, ...] = Field((), description="further host names of /metrics")
    certificate_file: Location | None = Field(
        None, description="certificate chain (PEM); with key_file, the ports use TLS"
    )
    key_file: Location | None = Field(None, description="private key of the certificate (PEM)")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("expected certificate_file and key_file, got one of them; set both or neither")
        if self.allow_anonymous and self.tokens_file:
            raise ValueError("expected allow_anonymous or tokens_file, got both; choose one")
        return self
