"""Checks the service's connections: receivers, the OpenID provider, logs and traces. No alert is sent."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx

from serve_app.access.rules import require_provider
from serve_app.alerts import receiver_trials
from serve_app.collect.base import Finding
from serve_app.collect.tools.lookup import ask_tool
from serve_app.collect.tools.request import ToolQuestion
from serve_app.errors import BadSettings, ProviderFailed
from serve_app.net.endpoint import SecretUnreadable, read_headers, ssl_context
from serve_app.net.http import first_line
from serve_app.settings import Settings
from serve_app.settings.access import serve_rules

DEADLINE_SECONDS = 5.0
RECEIVER_REMEDY = "start the receiver, or correct its entry in [notify]; until then its notifications wait"
TOOL_REMEDY = "correct the settings, or start it; until then, suspects on the page have no {} but a link"
PROVIDER_REMEDY = "correct serve.oidc or start the provider; until then, people can sign in with tokens only"


def check_receivers(settings: Settings) -> Iterator[Finding]:
    """Yield whether each receiver of notifications can be reached."""
    try:
        statuses = asyncio.run(receiver_trials.check_receivers(settings))
    except BadSettings as error:
        yield Finding("notify", "problem", str(error), "correct the setting")
        return
    for status in statuses:
        subject = f"receiver {status.kind}"
        if status.failed:
            problem = f"{status.name} takes no notifications: {status.detail or status.failed}"
            yield Finding(subject, "problem", problem, RECEIVER_REMEDY)
        else:
            yield Finding(subject, "ok", f"{status.name} answers; tagae notify test sends a test alert")


def check_provider(settings: Settings) -> Iterator[Finding]:
    """Read the sign-in provider's metadata, if one is configured: its issuer, its keys, and the addresses to register
    there."""
    if settings.serve.oidc is None:
        return
    try:
        rules = serve_rules(settings)
        require_provider(rules)
        from serve_app.access.oidc.provider import Provider  # needs the extra

        assert rules.oidc is not None  # checked by the settings
        metadata = asyncio.run(Provider(rules.oidc, DEADLINE_SECONDS).metadata())
    except (BadSettings, ProviderFailed) as error:
        yield Finding("openid provider", "problem", str(error), PROVIDER_REMEDY)
        return
    groups = ", ".join(sorted(rules.oidc.groups))
    sign_out = "here and at the provider" if metadata.end_session_endpoint else "here only"
    keys = f"keys: {len(metadata.keys)}; signs out {sign_out}; groups with access: {groups}"
    yield Finding("openid provider", "ok", f"{rules.oidc.issuer}, {keys}")
    addresses = f"{rules.oidc.redirect_url}, and after signing out: {rules.oidc.home}"
    yield Finding("redirect address", "ok", f"to register at the provider: {addresses}")


def check_tools(settings: Settings) -> Iterator[Finding]:
    """Send each mesh's queries to its logs and traces, for a service that does not exist."""
    now = datetime.now(UTC)
    question = ToolQuestion("tagae", "doctor", now - timedelta(minutes=5), now)
    for mesh, mesh_settings in settings.meshes.items():
        for subject, tool in (("logs", mesh_settings.logs), ("traces", mesh_settings.traces)):
            answer = asyncio.run(ask_tool(tool, question, DEADLINE_SECONDS))
            if answer is None:
                continue
            if answer.failed:
                problem = f"{answer.tool} {answer.failed}{answer.detail and f': {answer.detail}'}"
                yield Finding(f"{subject} of {mesh}", "warning", problem, TOOL_REMEDY.format(subject))
            else:
                yield Finding(f"{subject} of {mesh}", "ok", f"{answer.tool} takes the query")


def check_traces(settings: Settings) -> Iterator[Finding]:
    """Send a request without spans to the trace collector, if there is one."""
    traces = settings.traces
    if not traces.endpoint:
        return
    from serve_app.observability import traces as exporter  # needs the extra

    headers = {"content-type": "application/x-protobuf", "user-agent": "tagae"}
    try:
        exporter.check_traces(traces)
        headers |= read_headers(traces.headers_file) if traces.headers_file else {}
        verify = ssl_context(traces.ca_file)
        status = httpx.post(traces.url, headers=headers, verify=verify, timeout=DEADLINE_SECONDS).status_code
    except (BadSettings, SecretUnreadable) as error:
        yield Finding("traces", "problem", str(error), "correct the settings of traces")
    except httpx.HTTPError as error:
        remedy = "start the collector, or correct traces.endpoint; until then spans are dropped, but verdicts continue"
        yield Finding("traces", "warning", f"{traces.url} does not answer: {first_line(error)}", remedy)
    else:
        if status == httpx.codes.OK:
            yield Finding("traces", "ok", f"{traces.url} takes spans")
        else:
            remedy = "give the URL of OTLP over HTTP (port 4318 by default) in traces.endpoint, and its headers_file"
            yield Finding("traces", "warning", f"{traces.url} answers spans with {status}", remedy)
