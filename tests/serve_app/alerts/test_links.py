"""Links to other tools: which templates are valid, how values are encoded, and what settings do."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from serve_app.alerts.alert import MeshAlerts
from serve_app.alerts.delivery import receivers
from serve_app.alerts.links import LEAD, Links, LinkSubject, incident_subject
from serve_app.alerts.receivers.slack import slack_message
from serve_app.errors import BadSettings
from serve_app.net.link_template import PLACEHOLDERS, check_template, fill_template
from serve_app.settings import load
from tests.serve_app.alerts.alerting import NOW, incident, transition, verdict

GRAFANA = "https://grafana.example/d/abc/service?var-service={service}&from={start_ms}&to={end_ms}"


def test_values_are_encoded_wherever_they_stand() -> None:
    template = "https://tool.example/{mesh}/{service}?q=%7Bname%3D%22{namespace}%22%7D#{incident}"
    values = {"mesh": "a b", "service": "pay/eu&x=1", "namespace": 'é"}', "incident": "../?#"}
    assert fill_template(template, values) == (
        "https://tool.example/a%20b/pay%2Feu%26x%3D1?q=%7Bname%3D%22%C3%A9%22%7D%22%7D#..%2F%3F%23"
    )


@pytest.mark.parametrize(
    ("service", "encoded"),
    [
        ("shop/bank~20~gateway", "var-service=bank%20gateway&ns=shop"),
        ("shop/订单", "var-service=%E8%AE%A2%E5%8D%95&ns=shop"),
        ("a~2F~b/c~26~d", "var-service=c%26d&ns=a%2Fb"),
        ("shop/a~202E~b~D800~", "var-service=a%E2%80%AEb~D800~&ns=shop"),
    ],
)
def test_other_tools_get_the_original_name(service: str, encoded: str) -> None:
    links = Links(templates={"dashboard": "https://grafana.example/?var-service={service}&ns={namespace}"})
    assert links.tools(LinkSubject("shop", service)) == {"dashboard": f"https://grafana.example/?{encoded}"}


def test_a_value_is_never_a_template() -> None:
    link = fill_template("https://tool.example/{service}/{mesh}", {"service": "{mesh}", "mesh": "shop"})
    assert link == "https://tool.example/%7Bmesh%7D/shop"


def test_a_link_that_needs_what_is_not_known_is_left_out() -> None:
    links = Links(templates={"dashboard": GRAFANA, "runbook": "https://wiki.example/{kind}", "logs": "https://logs"})
    assert links.tools(LinkSubject("shop", "shop/cart", NOW, NOW)) == {
        "dashboard": f"https://grafana.example/d/abc/service?var-service=cart&from={_ms(NOW)}&to={_ms(NOW)}",
        "logs": "https://logs",
    }
    assert set(links.tools(LinkSubject("shop"))) == {"logs"}


@pytest.mark.parametrize("name", PLACEHOLDERS)
def test_each_placeholder_has_a_value(name: str) -> None:
    since, until = NOW, NOW.replace(hour=4)
    subject = incident_subject("shop", "i-1", "team/cart", "slow", since, until)
    url = Links("eu-1", templates={"x": f"https://x/{{{name}}}"}).tools(subject)["x"]
    values = {
        "cluster": "eu-1",
        "mesh": "shop",
        "namespace": "team",
        "service": "cart",
        "start_ms": _ms(since - LEAD),
        "end_ms": _ms(until),
        "incident": "i-1",
        "kind": "slow",
    }
    assert url == f"https://x/{values[name]}"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("javascript:alert({service})", "expected http://HOST"),
        ("ftp://files.example/{service}", "expected http://HOST"),
        ("grafana.example/d", "expected http://HOST"),
        ("https:///d/{service}", "expected http://HOST"),
        ("https://user:word@grafana.example/", "expected no user or password"),
        ("https://{namespace}.example/", "expected no placeholder in the host"),
        ("https://grafana.example/d?var={svc}", "expected only the placeholders {cluster}, {mesh}"),
        ("https://grafana.example/d?var={}", "expected only the placeholders"),
        ("https://grafana.example/explore?panes={{service}}", "write other braces as %7B and %7D"),
        ("https://grafana.example/d?var={service", "write other braces as %7B and %7D"),
        ("https://grafana.example/a b", "write a space as %20"),
        ("https://grafana.example/\n", "without spaces and control characters"),
    ],
)
def test_a_bad_template_is_refused_with_what_to_write(template: str, text: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        check_template(template)
    assert text in str(caught.value)
    with pytest.raises(BadSettings) as refused:
        load(overrides={"links": {"traces": template}})
    assert "links.traces (from override): " in str(refused.value)


def test_links_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tagae.toml"
    path.write_text(
        f'[links]\ndashboard = "{GRAFANA}"\nrunbook = "https://wiki.example/{{cluster}}/{{incident}}"\n'
        '[notify]\ncluster = "eu-1"\nexternal_url = "https://tagae.example"\n'
    )
    links = Links.from_settings(load(path))
    assert links.templates == {"dashboard": GRAFANA, "runbook": "https://wiki.example/{cluster}/{incident}"}
    assert links.urls(LinkSubject("shop", incident="i 1")) == {
        "page_url": "https://tagae.example/#mesh=shop&incident=i%201",
        "dashboard_url": "https://tagae.example/#mesh=shop&incident=i%201",
        "runbook_url": "https://wiki.example/eu-1/i%201",
        "verdict_url": "https://tagae.example/v1/meshes/shop/verdict",
    }


OWN_LINKS: dict[str, Any] = {
    "links": {"dashboard": GRAFANA, "logs": "https://logs/{service}", "runbook": "https://wiki.example/{mesh}"},
    "meshes": {
        "shop": {"links": {"logs": "https://shop-logs/{service}", "runbook": "https://shop-wiki/{mesh}"}},
        "pay": {"entry_points": ["shop/web"]},
    },
}


def test_each_link_of_a_mesh_wins_over_the_same_one_of_all_meshes() -> None:
    links = Links.from_settings(load(overrides=OWN_LINKS))
    dashboard = f"https://grafana.example/d/abc/service?var-service=cart&from={_ms(NOW)}&to={_ms(NOW)}"
    shop = links.tools(LinkSubject("shop", "shop/cart", NOW, NOW))
    assert shop == {"dashboard": dashboard, "logs": "https://shop-logs/cart", "runbook": "https://shop-wiki/shop"}
    for mesh in ("pay", "bank"):  # without links, and without a table
        urls = links.tools(LinkSubject(mesh, "shop/cart", NOW, NOW))
        assert urls == {
            "dashboard": dashboard,
            "logs": "https://logs/cart",
            "runbook": f"https://wiki.example/{mesh}",
        }


def test_a_bad_template_of_a_mesh_is_refused_by_its_name() -> None:
    with pytest.raises(BadSettings, match=r"meshes\.shop\.links\.logs \(from override\)"):
        load(overrides={"meshes": {"shop": {"links": {"logs": "ftp://files"}}}})


def test_alerts_of_a_mesh_have_its_own_links() -> None:
    links = receivers(load(overrides=OWN_LINKS)).links
    for mesh, logs in (("shop", "https://shop-logs/cart"), ("pay", "https://logs/cart")):
        change = transition(MeshAlerts(), mesh, verdict(incident("a", "team/cart")), NOW, links)
        (opened,), (event,) = change.alerts.open, change.events
        assert opened.alert.annotations["logs_url"] == event.document["links"]["logs_url"] == logs


def test_alerts_and_events_have_the_links_of_their_incident() -> None:
    links = Links(
        external_url="https://tagae.example",
        templates={"dashboard": GRAFANA, "runbook": "https://wiki.example/{kind}", "logs": "https://logs/{namespace}"},
    )
    change = transition(MeshAlerts(), "shop", verdict(incident("a", "team/cart")), NOW, links)
    (opened,), (event,) = change.alerts.open, change.events
    start = _ms(opened.alert.starts_at - LEAD)
    tools = {
        "dashboard_url": f"https://grafana.example/d/abc/service?var-service=cart&from={start}&to={_ms(NOW)}",
        "logs_url": "https://logs/team",
        "runbook_url": "https://wiki.example/slow",
    }
    assert tools.items() <= opened.alert.annotations.items()
    assert tools.items() <= event.document["links"].items()
    text = slack_message(event.document)["blocks"][-1]["elements"][0]["text"]
    for name in ("Open the incident", "Dashboard", "Logs", "Runbook"):
        assert f"|{name}>" in text
    plain = transition(MeshAlerts(), "shop", verdict(incident()), NOW, replace(links, templates={})).events[0]
    assert "|Dashboard>" not in slack_message(plain.document)["blocks"][-1]["elements"][0]["text"]


def _ms(at: datetime) -> str:
    return str(int(at.astimezone(UTC).timestamp() * 1000))
