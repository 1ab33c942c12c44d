"""Any text becomes a name; two texts never become one, and people see the original."""

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model.names import (
    LONGEST_NAME,
    NAME_PATTERN,
    NAMESPACE_PATTERN,
    SERVICE_PATTERN,
    as_service_id,
    escape_name,
    escape_namespace,
    find_bad_name,
    is_service_name,
    is_services_name,
    original_name,
    readable,
)

MISLEADING = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}  # control, format, surrogate, private, line, paragraph
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.text(
    "ab-_.:/~ 20Fé\u0301訂\u202e\u200b\u00a0", min_size=1, max_size=8
)


def service_id(namespace: str, name: str) -> str:
    return f"{escape_namespace(namespace)}/{escape_name(name)}"


long_texts = st.builds(lambda text, times: text * times, texts, st.integers(20, 60))


@given(texts, texts)
@example("bank gateway", "bank/gateway")
@example("a~20~b", "a b")
@example("caf\u00e9", "cafe\u0301")
@example("a//b", "a/~2F~b")
@example("支付", "库存")
def test_two_texts_never_become_one_name(one: str, other: str) -> None:
    for escape in (escape_name, escape_namespace):
        assert (escape(one) == escape(other)) == (one == other)
        assert original_name(escape(one)) == one
    assert (service_id(one, other) == service_id(other, one)) == (one == other)
    assert "/" not in escape_namespace(one), "the namespace ends at the first slash of an id"


@given(long_texts | texts, long_texts | texts)
def test_every_text_becomes_an_id_that_the_api_accepts(namespace: str, name: str) -> None:
    made = service_id(namespace, name)
    assert is_service_name(made)
    assert find_bad_name([made, "shop/cart"]) is None
    assert re.fullmatch(SERVICE_PATTERN, made), "the pattern of the schema"
    assert as_service_id(made) == made
    assert max(map(len, made.split("/", 1))) <= LONGEST_NAME


@pytest.mark.parametrize("text", ["cart", "cart-v2", "10.0.0.1:8080", "_x", "db/primary", "a.b:c_d-e", "x" * 253])
def test_plain_names_stay_as_they_are(text: str) -> None:
    assert escape_name(text) == text == readable(text)


@pytest.mark.parametrize("end", ["a", "b", "服务", " "])
def test_long_texts_with_the_same_beginning_stay_different(end: str) -> None:
    for begin in ("x" * LONGEST_NAME, "服" * LONGEST_NAME, " " * 90, "a/" * LONGEST_NAME, "-" * LONGEST_NAME):
        names = {escape_name(begin + end), escape_name(begin + end + end), escape_name(begin)}
        assert len(names) == 3
        assert readable(escape_name("x" * 300)).startswith("x" * 200), "people see the beginning"


@given(texts, texts)
def test_what_people_see_has_nothing_that_hides_or_reverses(namespace: str, name: str) -> None:
    shown = readable(service_id(namespace, name))
    assert not {unicodedata.category(char) for char in shown} & MISLEADING
    assert not set(shown) & set("\u00ad\u034f\u115f\u3164\ufe0f\u200b\u202e\u2066\ufeff")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("shop/bank~20~gateway", "shop/bank gateway"),
        ("default/PGSQL~20~Query is slow", "default/PGSQL Query is slow"),
        ("shop/~1F600~", "shop/\U0001f600"),
        ("shop/a~202E~b", "shop/a~202E~b"),
        ("shop/a~7E~20~7E~b", "shop/a~7E~20~7E~b"),
        ("about ~20 ms, ~30 MB", "about ~20 ms, ~30 MB"),
        ("eu~2F~prod/cart", "eu~2F~prod/cart"),
    ],
)
def test_people_see_the_original_name(text: str, shown: str) -> None:
    assert readable(text) == shown
    assert readable(shown) == shown, "a text that is read twice stays the same"


@pytest.mark.parametrize(
    "name",
    ["a b", "a@b", "-a", "a.", "a~b", "a~20", "~", "a~020~", "a~41~", "a~zz~", "a//b", "a/", "a\n", "a\u200bb",
     "a\u202eb", "\u00a0", "\U0001f600", "\ue000", "\ufdd0", "x" * 254, "a~110000~", ""],
)  # fmt: skip
def test_other_names_are_refused_and_their_spelling_is_known(name: str) -> None:
    assert not is_service_name(f"shop/{name}")
    bad = find_bad_name(["shop/cart", f"shop/{name}"])
    assert bad is not None
    assert (bad.position, bad.part, bad.text) == (1, "name", name)
    if name:
        assert is_service_name(f"shop/{escape_name(name)}")
        assert is_service_name(as_service_id(f"shop/{name}"))


def test_a_person_may_write_an_id_or_the_original_name() -> None:
    assert as_service_id("shop/bank gateway") == as_service_id("shop/bank~20~gateway") == "shop/bank~20~gateway"
    assert as_service_id("my shop/*") == "my~20~shop/*"
    assert as_service_id("shop/订单服务") == "shop/订单服务"
    assert as_service_id("cart") == "cart"
    assert is_services_name("shop/*")
    assert is_services_name("shop/cart")
    assert not is_services_name("a b/*")
    assert not is_services_name("shop")


@pytest.mark.parametrize("pattern", [NAMESPACE_PATTERN, NAME_PATTERN, SERVICE_PATTERN])
def test_a_long_text_that_does_not_fit_is_refused_at_once(pattern: str) -> None:
    """The pattern looks at no character more than a few times: this would not end otherwise."""
    for text in ("a-" * 100_000, "~20~" * 50_000, "a/" * 100_000):
        assert not re.fullmatch(pattern, f"{text}!")
