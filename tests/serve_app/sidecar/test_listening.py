"""The socket of the service in one process."""

import socket
from contextlib import closing

import pytest

from serve_app.errors import BadSettings
from serve_app.sidecar.single import listen

LOOPBACK = "127.0.0.1"


def test_no_answer_waits_until_its_headers_are_acknowledged() -> None:
    with closing(listen(LOOPBACK, 0)) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_address_in_use_is_refused_with_what_to_do() -> None:
    with closing(listen(LOOPBACK, 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(BadSettings, match=f"{LOOPBACK}:{port}.*choose another"):
            listen(LOOPBACK, port)
