"""The search for services: order, limit, and which snapshots it covers."""

from datetime import UTC, datetime, timedelta

import numpy as np

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.web.documents import ServicesDocument
from serve_app.web.search import find_services


def snapshot(index: int, *names: str) -> MeshSnapshot:
    return MeshSnapshot.create(
        node_ids=names,
        edge_index=np.zeros((2, 0), np.int64),
        node_features=np.ones((len(names), len(NODE_METRICS))),
        edge_features=np.ones((0, len(EDGE_METRICS))),
        observed_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=15 * index),
    )


WINDOW = [snapshot(0, "shop/cart", "pay/old"), snapshot(1, "shop/cart", "shop/cart-2", "pay/mycart", "Pay/Card")]


def find(text: str, limit: int = 10) -> tuple[list[str], int]:
    found = ServicesDocument.model_validate_json(find_services(WINDOW, text, limit))
    return found.services, found.total


def test_the_same_name_comes_first_then_those_that_begin_with_the_text() -> None:
    assert find("cart")[0] == ["shop/cart", "shop/cart-2", "pay/mycart"]
    assert find("shop/cart-2")[0] == ["shop/cart-2"]
    assert find("SHOP/CART")[0] == ["shop/cart", "shop/cart-2"]
    assert find("pay/")[0] == ["Pay/Card", "pay/mycart", "pay/old"]


def test_people_search_for_the_original_name() -> None:
    window = [snapshot(0, "shop/bank~20~gateway", "shop/bank", "shop/订单服务", "shop/a~40~b")]

    def found(text: str) -> list[str]:
        return ServicesDocument.model_validate_json(find_services(window, text, 10)).services

    assert found("shop/bank gateway") == ["shop/bank~20~gateway"]
    assert found("Bank") == ["shop/bank", "shop/bank~20~gateway"]
    assert found("订单") == ["shop/订单服务"]
    assert found("a@b") == found("a~40~b") == ["shop/a~40~b"]


def test_all_kept_snapshots_count_and_the_list_is_limited() -> None:
    assert find("old") == (["pay/old"], 1)
    assert find("", 2) == (["Pay/Card", "pay/mycart"], 5)
    assert find("nobody") == ([], 0)
