"""Embeddings in a Redis, as other systems read them."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import redis

from serve_app.errors import StoreGone
from serve_app.settings import StoreSettings
from serve_app.stores.redis_embeddings import RedisEmbeddings
from tests.live.programs import free_ports
from tests.live.redis import RedisProgram
from tests.serve_app.api.test_embeddings import FOUND, VECTORS


def test_each_service_is_a_hash_that_expires(redis_program: RedisProgram) -> None:
    target = RedisEmbeddings(redis_program.settings(), "vectors", 60)
    target.write(FOUND)
    target.write(replace(FOUND, model="c3d4"))
    target.close()
    with redis.Redis.from_url(redis_program.url) as client:
        cart = client.hgetall("vectors:{prod}:shop/cart")
        assert (cart[b"model"], cart[b"deviation"]) == (b"c3d4", b"0.5")
        np.testing.assert_array_equal(np.frombuffer(cart[b"embedding"], "<f4"), VECTORS[0])
        assert client.hget("vectors:{prod}:shop/pay", "deviation") == b""
        about = client.hgetall("vectors:{prod}")
        assert (about[b"services"], about[b"dimensions"], about[b"status"]) == (b"4", b"3", b"normal")
        assert {0 < client.ttl(key) <= 60 for key in client.keys("vectors:*")} == {True}
        assert len(client.keys("vectors:*")) == 5


def test_a_redis_that_is_away_is_named() -> None:
    url = f"redis://127.0.0.1:{free_ports(1)[0]}/0"
    settings = StoreSettings(kind="redis", url=url, timeout_seconds=0.2)
    with closing(RedisEmbeddings(settings, "vectors", 60)) as target, pytest.raises(StoreGone, match=url):
        target.write(FOUND)
