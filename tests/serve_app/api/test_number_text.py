"""Numbers as text, by the examples that the page shares."""

import math
from collections.abc import Callable

import pytest

from serve_app.api.number_text import anomaly_text, score_text, share_text, span_text
from serve_app.api.wording import unit
from tests.number_examples import EXAMPLES

KINDS: dict[str, Callable[[float], str]] = {
    "score": score_text,
    "anomaly": anomaly_text,
    "share": share_text,
    "span": span_text,
}


@pytest.mark.parametrize(("kind", "value", "text"), EXAMPLES)
def test_a_number_reads_like_this(kind: str, value: float, text: str) -> None:
    write = KINDS.get(kind) or unit(kind, value).words
    assert write(value) == text


def test_a_value_that_was_not_observed_has_no_number() -> None:
    assert unit("request_rate", 1.0).words(math.nan) == "not observed"
