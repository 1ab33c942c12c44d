"""The search for services: order, limit, and which snapshots it covers."""

from datetime import timedelta

from model.snapshot import MeshSnapshot
from serve_app.web.documents import ServicesDocument
from serve_app.web.queries import find_services
from tests.builders import AT, mesh_of


def snapshot(index: int, *names: str) -> MeshSnapshot:
    return mesh_of(names, at=AT + timedelta(seconds=15 * index), nodes=1.0)


WINDOW = [snapshot(0, "shop/cart", "pay/old"), snapshot(1, "shop/cart", "shop/cart-2", "pay/mycart", "Pay/Card")]


def find(text: str, limit: int = 10) -> tuple[list[str], int]:
    document = ServicesDocument.model_validate_json(find_services(WINDOW, text, limit))
    return document.services, document.total


def test_the_same_name_comes_first_then_those_that_begin_with_the_text() -> None:
    assert find("cart")[0] == ["shop/cart", "shop/cart-2", "pay/mycart"]
    assert find("shop/cart-2")[0] == ["shop/cart-2"]
    assert find("SHOP/CART")[0] == ["shop/cart", "shop/cart-2"]
    assert find("pay/")[0] == ["Pay/Card", "pay/mycart", "pay/old"]


def test_a_name_without_its_namespace_comes_before_longer_names() -> None:
    window = [snapshot(0, "a/email-490", "a/shop-email-49", "b/email-49", "c/Email-49")]
    assert ServicesDocument.model_validate_json(find_services(window, "email-49", 10)).services == [
        "b/email-49",
        "c/Email-49",
        "a/email-490",
        "a/shop-email-49",
    ]


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
