"""Configured ports that cannot be opened."""

import socket

import pytest
import ray

from serve_app.errors import BadSettings
from serve_app.runtime import local
from serve_app.settings import Settings


@pytest.mark.parametrize("name", ["port", "metrics_port"])
def test_a_port_that_is_taken_is_refused_before_anything_starts(name: str) -> None:
    before = ray.is_initialized()
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as Ray's proxy holds its port
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        with pytest.raises(BadSettings, match=rf"serve\.{name}: expected a free port, {port} is in use"):
            local.start(Settings(serve={"port": 0, name: port}))
    assert ray.is_initialized() == before


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"serve\.host: expected an address of this machine, got '192\.0\.2\.1'"):
        local.start(Settings(serve={"host": "192.0.2.1"}))
