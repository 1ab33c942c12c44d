"""Addresses and headers of other servers."""

from pathlib import Path

import pytest

from serve_app.errors import BadSettings
from serve_app.net.endpoint import Endpoint, SecretUnreadable, check_headers, join_url


@pytest.mark.parametrize(
    ("url", "joined"),
    [
        ("http://x", "http://x/api"),
        ("http://x/", "http://x/api"),
        ("https://x:1/a/b/", "https://x:1/a/b/api"),
        ("http://x/select/0/prometheus?extra_label=a=b", "http://x/select/0/prometheus/api?extra_label=a=b"),
        ("http://x?a=/b/", "http://x/api?a=/b/"),
        ("http://[::1]:9090/?a", "http://[::1]:9090/api?a"),
    ],
)
def test_a_path_is_joined_before_the_parameters(url: str, joined: str) -> None:
    assert join_url(url, "/api") == joined


def test_headers_come_from_settings_and_files(tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("X-Tenant: b\nX-Key:  k \n")
    (tmp_path / "password").write_text("p")
    endpoint = Endpoint(
        "http://x",
        username="u",
        password_file=tmp_path / "password",
        headers=(("X-Tenant", "a"), ("X-More", "m")),
        headers_file=tmp_path / "headers",
    )
    assert endpoint.request_headers() == {
        "X-Tenant": "b",
        "X-More": "m",
        "X-Key": "k",
        "Authorization": "Basic dTpw",
    }
    (tmp_path / "headers").write_bytes(b"\xef\xbb\xbfX-A: 1\r\n\r\n # X-B: 2\r\n")
    assert Endpoint("http://x", headers_file=tmp_path / "headers").request_headers() == {"X-A": "1"}
    (tmp_path / "headers").write_text("Authorization: Api-Token t\n")
    own = Endpoint("http://x", headers_file=tmp_path / "headers")
    assert own.request_headers() == {"Authorization": "Api-Token t"}
    (tmp_path / "headers").write_text("s3cret")
    with pytest.raises(SecretUnreadable, match=r"headers, line 1: expected `name: value` in ASCII$"):
        own.request_headers()
    (tmp_path / "headers").unlink()
    with pytest.raises(SecretUnreadable, match=r"cannot read .*headers"):
        own.request_headers()


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"X Scope": "a"}, "expected a header name"),
        ({"": "a"}, "expected a header name"),
        ({"X-A": "ä"}, "X-A: expected printable ASCII"),
        ({"X-A": "a\r\nX-B: b"}, "X-A: expected printable ASCII"),
        ({"X-A": " a"}, "X-A: expected printable ASCII"),
        ({"authorization": "Bearer x"}, "write the header into a file and name it"),
        ({"Cookie": "session=x"}, "write the header into a file and name it"),
    ],
)
def test_headers_that_cannot_be_literal_are_refused(headers: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        check_headers(headers)
    assert "Bearer x" not in str(caught.value)
    check_headers({"X-Scope-OrgID": "a|b", "THANOS-TENANT": ""})


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_text("no certificate")
    with pytest.raises(BadSettings, match=r"certificate_file .*own.pem: expected a certificate and its key in PEM"):
        Endpoint("https://x", certificate_file=tmp_path / "own.pem").ssl_context()
    assert Endpoint("https://x").ssl_context() is True
