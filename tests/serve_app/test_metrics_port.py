"""The port that Ray's metrics are pinned to."""

import socket

import pytest
import ray

from serve_app.deployments import local
from serve_app.errors import BadSettings


def test_a_port_that_is_taken_is_refused_before_anything_starts() -> None:
    before = ray.is_initialized()
    with socket.socket() as held:
        held.bind(("", 0))
        held.listen()
        port = held.getsockname()[1]
        with pytest.raises(BadSettings, match=rf"serve\.metrics_port: expected a free port, {port} is taken"):
            local.up("127.0.0.1", 0, port)
    assert ray.is_initialized() == before
