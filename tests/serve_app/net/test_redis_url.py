"""URLs of a Redis."""

import pytest

from serve_app.net.redis_url import RedisAddress, parse_redis_url


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://here", RedisAddress("server", (("here", 6379),))),
        ("redis://here:7000/3", RedisAddress("server", (("here", 7000),), 3)),
        ("rediss://[::1]:7000", RedisAddress("server", (("::1", 7000),), is_secure=True)),
        ("unix:///run/redis.sock", RedisAddress("socket", path="/run/redis.sock")),
        ("unix:///run/a%20b.sock?db=2", RedisAddress("socket", database=2, path="/run/a b.sock")),
        ("redis+sentinel://a,b:7000/shop", RedisAddress("sentinel", (("a", 26379), ("b", 7000)), service="shop")),
        ("rediss+sentinel://a/shop/4", RedisAddress("sentinel", (("a", 26379),), 4, True, service="shop")),
        ("redis+cluster://a:1,b", RedisAddress("cluster", (("a", 1), ("b", 6379)))),
    ],
)
def test_a_url_is_read(url: str, address: RedisAddress) -> None:
    assert parse_redis_url(url) == address


@pytest.mark.parametrize(
    "url",
    [
        *("", "here:6379", "http://here", "redis://", "redis://here/x", "redis://here:0", "redis://here:99999"),
        *("redis://a,b", "redis://here/1/2", "redis://here?x=1", "redis+other://here", "redis+sentinel://here"),
        *("redis+cluster://here/1", "unix://here/path", "unix:///path?password=x", "redis://he re"),
    ],
)
def test_a_wrong_url_is_refused_with_what_was_expected(url: str) -> None:
    with pytest.raises(ValueError, match="expected redis://HOST"):
        parse_redis_url(url)


def test_a_url_with_a_password_is_refused() -> None:
    with pytest.raises(ValueError, match=r"store\.password_file"):
        parse_redis_url("redis://:secret@here")
