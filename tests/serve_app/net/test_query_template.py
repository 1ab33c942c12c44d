"""Names in queries: they stay names, whatever they contain."""

import json
import re

import pytest

from serve_app.errors import BadSettings
from serve_app.net.query_template import check_query, fill_name, fill_query
from serve_app.settings import load
from serve_app.settings.tools import LOGQL, TRACEQL

HOSTILE = [
    'cart"} or {app=~".+',
    'cart" && status = ok || resource.service.name = "web',
    "cart\\",
    'cart\\" | line_format "',
    "cart`} |= `",
    "cart\n} # comment",
    "$namespace",
    "$service",
    ".*",
    "a|b",
    "bank gateway",
    "订单\u202e",
    "\x00\x1f",
]
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("query", [LOGQL, TRACEQL, '{app="$service", pod="$service-$namespace"} |= `x` | json'])
def test_a_name_stays_in_its_string(query: str, name: str) -> None:
    filled = fill_query(query, {"namespace": name, "service": name})
    assert STRING.sub('""', filled) == STRING.sub('""', query)
    for template, text in zip(STRING.findall(query), STRING.findall(filled), strict=True):
        if "$" in template:
            read = json.loads(f'"{text}"')  # Go reads the escapes of JSON in the same way
            assert read == template.replace("$service", name).replace("$namespace", name) or "$" in name
            assert read.count(name) == len(re.findall(r"\$\w+", template))


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("operator", ["=~", "!~", "|~"])
def test_a_name_in_a_regular_expression_matches_itself_only(operator: str, name: str) -> None:
    filled = fill_query(f'{{pod{operator} "$service-.+"}}', {"namespace": "shop", "service": name})
    (pattern,) = (json.loads(f'"{text}"') for text in STRING.findall(filled))
    assert re.fullmatch(pattern, f"{name}-7f9")
    assert not re.fullmatch(pattern, "other-7f9")


def test_a_plain_name_is_written_unchanged() -> None:
    names = {"namespace": "shop", "service": "cart-v1.2"}
    assert fill_query('{a="$namespace"} |~ "x$"', {**names}) == '{a="shop"} |~ "x$"'
    assert fill_query('{a="$namespace/$service"}', names) == '{a="shop/cart-v1.2"}'
    assert fill_name("$service.$namespace", names) == "cart-v1.2.shop"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("{app=$service}", "inside a string in double quotes"),
        ('{app="x"} |= `$service`', "inside a string in double quotes"),
        ('{app="$svc"}', "expected only the placeholders"),
        ('{app="x"}', "expected the placeholder $service"),
        ('{app="$service}', "inside a string in double quotes"),
        ('{app="x\\\\"$service"}', "inside a string in double quotes"),
        ("", "expected the placeholder $service"),
    ],
)
def test_a_bad_query_is_refused_with_what_to_write(query: str, text: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        check_query(query)
    assert text in str(caught.value)
    with pytest.raises(BadSettings) as refused:
        load(overrides={"meshes": {"shop": {"logs": {"loki": "http://loki:3100", "query": query}}}})
    assert "meshes.shop.logs" in str(refused.value)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("mesh", "text"),
    [
        ({"logs": {"query": LOGQL + " "}}, "expected one of loki, got none"),
        ({"logs": {"bearer_token_file": "/x"}}, "expected one of loki, got none"),
        (
            {"traces": {"tempo": "http://a", "jaeger": "http://b"}},
            "expected one of tempo, jaeger, got tempo and jaeger",
        ),
        ({"traces": {"tempo": "http://a", "query": "$service"}}, "inside a string in double quotes"),
        ({"traces": {"jaeger": "http://a", "query": "$svc"}}, "expected only the placeholders"),
        ({"logs": {"loki": "loki:3100"}}, "expected http://HOST"),
        ({"links": {"trace": "https://grafana.example/x"}}, "expected {trace}"),
        ({"links": {"trace": "https://{trace}.example/x/{trace}"}}, "expected no placeholder"),
        ({"links": {"trace": "https://x/{trace}/{svc}"}}, "expected only the placeholders"),
    ],
)
def test_tools_that_cannot_work_are_refused(mesh: dict[str, object], text: str) -> None:
    with pytest.raises(BadSettings) as refused:
        load(overrides={"meshes": {"shop": mesh}})
    assert text in str(refused.value)


def test_the_default_queries_are_valid() -> None:
    assert (check_query(LOGQL), check_query(TRACEQL)) == (LOGQL, TRACEQL)
    chosen = load(overrides={"meshes": {"shop": {"traces": {"jaeger": "http://j:16686"}}}}).mesh("shop").traces
    assert (chosen.kind, chosen.chosen_query) == ("jaeger", "$service")
