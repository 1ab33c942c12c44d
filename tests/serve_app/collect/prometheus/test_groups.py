"""Groups of series from answers that stores write in several ways."""

import json

import numpy as np
import pytest

from serve_app.collect.prometheus.client import QueryAnswer, Samples
from serve_app.collect.prometheus.groups import COUNTS, LONG, NEWEST, REQUESTS, read_groups
from serve_app.collect.prometheus.query import Query

BY_SERVICE = Query("sum by (namespace, service) (rate(requests_total{$match}[$window]))", ("namespace", "service"))


def answer(*samples: tuple[dict[str, str | None] | None, float]) -> QueryAnswer:
    labels = [json.dumps(labels).encode() for labels, _ in samples]
    return QueryAnswer(Samples(labels, np.array([value for _, value in samples])))


def test_empty_labels_are_written_as_null_or_left_out() -> None:
    web = {"namespace": "shop", "service": "web"}
    groups = read_groups(
        BY_SERVICE,
        {
            LONG: answer(({**web, "job": None, "cluster": None}, 32.0), (None, 5.0), ({"namespace": None}, 5.0)),
            REQUESTS: answer(({**web, "job": ""}, 40.0), ({}, 1.0)),
        },
    )
    assert [(one.service, one.job, one.origin, one.requests) for one in groups] == [(("shop", "web"), "", {}, 40.0)]
    assert groups[0].counts == {LONG: 32.0}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_is_not_known(value: float) -> None:
    web: dict[str, str | None] = {"namespace": "shop", "service": "web"}
    groups = read_groups(BY_SERVICE, {part: answer((web, value)) for part in (*COUNTS, NEWEST, REQUESTS)})
    assert [(one.counts, one.newest, one.requests) for one in groups] == [({}, None, 0.0)]
