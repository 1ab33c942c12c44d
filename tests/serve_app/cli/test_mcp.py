"""``tagae mcp``, driven by the client of the reference SDK: over stdio against a running service, and in process."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import mcp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.client import Client
from serve_app.cli.mcp.fit import MAX_CHARACTERS, fit
from serve_app.cli.mcp.tools import build_server
from serve_app.errors import DocumentTooLarge
from tests.serve_app.cli.agents import agent, call, refusal
from tests.serve_app.running import Service, failing, push, record_simulation

MESH = "mcp"
SPEC = MeshSpec(services=30, calls_per_service=3.0, seed=4)
READ = {"comparison", "details", "graph", "incidents", "meshes", "mutes", "source", "timeline", "verdict"}
WRITE = {"accept_incident", "give_feedback", "mute", "unmute"}


async def names(client: mcp.Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


@pytest.fixture(scope="module")
def incident(service: Service) -> dict[str, Any]:
    """The verdict of a mesh with an open incident."""
    for snapshot in record_simulation(SPEC, 60, fault_from=40):
        verdict = push(service, MESH, snapshot)
    assert verdict["status"] == "anomalous"
    return verdict


@pytest.mark.ray
@pytest.mark.timeout(300)
async def test_an_agent_reads_all_views_of_a_running_service(service: Service, incident: dict[str, Any]) -> None:
    view = f"/v1/meshes/{MESH}"

    def document(path: str, **parameters: str) -> Any:
        return service.http.get(path, params=parameters).raise_for_status().json()

    async with agent("--url", service.url) as client:
        assert await names(client) == READ
        assert MESH in {row["mesh"] for row in await call(client, "meshes")}
        assert await call(client, "verdict", mesh=MESH) == incident
        assert await call(client, "incidents", mesh=MESH) == document(f"{view}/incidents")
        timeline = await call(client, "timeline", mesh=MESH)
        assert timeline == document(f"{view}/timeline")
        past = timeline["observed_at"][20]
        assert (await call(client, "timeline", mesh=MESH, since=past))["observed_at"] == timeline["observed_at"][21:]
        assert await call(client, "verdict", mesh=MESH, at=past) == document(f"{view}/verdict", at=past)
        culprit = failing(SPEC)
        details = await call(client, "details", mesh=MESH, service=culprit)
        assert details["service"] == culprit
        assert (
            details["metrics"][0]["observed"] == document(f"{view}/details", service=culprit)["metrics"][0]["observed"]
        )
        assert await call(client, "source", mesh=MESH) == document(view)["source"]
        assert await call(client, "mutes", mesh=MESH) == {"mutes": []}
        ends = dict(
            zip(
                ("first_from", "first_to", "second_from", "second_to"),
                (timeline["observed_at"][i] for i in (20, 35, 45, 59)),
                strict=True,
            )
        )
        compared = await call(client, "comparison", mesh=MESH, **ends)
        assert compared == document(f"{view}/comparison", **ends)
        assert culprit in {row["service"] for row in compared["rows"]}


@pytest.mark.ray
@pytest.mark.timeout(300)
async def test_the_graph_begins_with_the_most_unusual_services(service: Service, incident: dict[str, Any]) -> None:
    culprit = failing(SPEC)
    whole = service.http.get(f"/v1/meshes/{MESH}/graph").json()
    with Client(service.url) as http:
        async with mcp.Client(build_server(http, None)) as client:
            graph = await call(client, "graph", mesh=MESH)
            part = await call(client, "graph", mesh=MESH, service=culprit)
    for rows in ("services", "calls"):
        scores = [row["deviation"] for row in graph[rows] if row["deviation"] is not None]
        assert scores == sorted(scores, reverse=True)
        assert sorted(graph[rows], key=json.dumps) == sorted(whole[rows], key=json.dumps)
    calls = [call for call in whole["calls"] if culprit in (call["source"], call["destination"])]
    assert sorted(part["calls"], key=json.dumps) == sorted(calls, key=json.dumps)
    around = {call[end] for call in calls for end in ("source", "destination")}
    assert {f"{row['namespace']}/{row['name']}" for row in part["services"]} == around


@pytest.mark.ray
@pytest.mark.timeout(300)
async def test_an_agent_with_a_write_token_gives_feedback_and_mutes(
    service: Service, incident: dict[str, Any], tmp_path: Path
) -> None:
    token = tmp_path / "write.token"
    token.write_text("this-service-asks-for-none")
    identity, culprit = incident["incidents"][0]["id"], failing(SPEC)
    async with agent("--url", service.url, "--write-token-file", str(token)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == READ | WRITE
        assert {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint} == READ
        feedback = {"incident": identity, "was_incident": True, "culprit": culprit, "note": "confirmed"}
        kept = await call(client, "give_feedback", mesh=MESH, feedback=feedback)
        assert kept in service.http.get(f"/v1/meshes/{MESH}/feedback").json()["feedback"]
        end = datetime.fromisoformat(incident["observed_at"]).replace(year=2026, month=1, day=2)
        mute = {"services": [culprit], "end": end.isoformat(), "reason": "database upgrade"}
        muted = await call(client, "mute", mesh=MESH, mute=mute)
        assert (await call(client, "mutes", mesh=MESH))["mutes"] == [muted]
        assert await call(client, "unmute", mesh=MESH, mute=muted["id"]) == {"removed": muted["id"]}
        assert await call(client, "mutes", mesh=MESH) == {"mutes": []}
        assert "404" in await refusal(client, "unmute", mesh=MESH, mute=muted["id"])
        assert "expected an open incident" in await refusal(client, "accept_incident", mesh=MESH, incident="nothing")
        assert "404" in await refusal(
            client, "give_feedback", mesh=MESH, feedback={"incident": "20260101T000000Z-00000000", "was_incident": True}
        )
        accepted = await call(client, "accept_incident", mesh=MESH, incident=identity, note="a new release")
        assert (accepted["incident"], accepted["note"]) == (identity, "a new release")


@pytest.mark.ray
@pytest.mark.timeout(300)
async def test_errors_of_the_service_reach_the_agent(service: Service, incident: dict[str, Any]) -> None:
    with Client(service.url) as http:
        async with mcp.Client(build_server(http, None)) as client:
            assert "404: mesh 'other': nothing is stored" in await refusal(client, "verdict", mesh="other")
            assert "no snapshot of 2020-01-01" in await refusal(client, "verdict", mesh=MESH, at="2020-01-01T00:00:00Z")
            assert "mesh name: expected" in await refusal(client, "graph", mesh="../readyz?")
            assert "RFC 3339" in await refusal(client, "verdict", mesh=MESH, at="yesterday")
            assert "Unknown tool" in await refusal(client, "mute", mesh=MESH, mute={})


async def test_an_agent_learns_that_the_service_is_down() -> None:
    with Client("http://127.0.0.1:9", patience_seconds=0.1) as http:
        async with mcp.Client(build_server(http, None)) as client:
            assert "no answer from http://127.0.0.1:9" in await refusal(client, "meshes")


async def test_without_a_write_token_no_tool_changes_anything() -> None:
    with Client("http://127.0.0.1:9") as http:
        async with mcp.Client(build_server(http, None)) as client:
            tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == READ
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
    assert all(tool.description for tool in tools)


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(0, 10**6) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=200,
)


@given(DOCUMENTS, st.booleans())
def test_a_document_that_fits_is_whole_and_a_longer_one_is_cut(document: Any, newest: bool) -> None:
    whole = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    try:
        text, *note = fit(document, newest=newest, max_characters=200)
    except DocumentTooLarge:
        assert len(whole) > 200
        return
    assert len(text) <= 200
    assert (json.loads(text) == document) is (not note) or len(whole) > 200
    assert bool(note) is (len(whole) > 200)


def test_a_long_document_keeps_its_best_or_newest_rows_with_a_note() -> None:
    columns = {"time": list(range(20_000)), "score": list(range(20_000)), "open": [{"affected": ["a"] * 7}]}
    text, note = fit(columns, newest=True)
    assert len(text) <= MAX_CHARACTERS
    kept = json.loads(text)
    assert kept["time"] == kept["score"] == list(range(19_000, 20_000))
    assert kept["open"] == columns["open"]
    assert note == "Truncated: each list has its last 1000 items. Full lengths: time 20000, score 20000"
    text, note = fit({"rows": [{"affected": ["shop/cart"] * 900}] * 4})
    assert json.loads(text) == {"rows": [{"affected": ["shop/cart"] * 500}] * 4}
    assert note == "Truncated: each list has its first 500 items. Full lengths: rows.affected 900"
