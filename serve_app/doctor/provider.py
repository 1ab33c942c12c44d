"""Checks the OpenID provider that people sign in at: reachable, the right issuer, keys, and what to register there."""

import asyncio
from collections.abc import Iterator

from serve_app.access.oidc.rules import OidcRules
from serve_app.access.rules import require_provider
from serve_app.collect.base import Finding
from serve_app.errors import BadSettings, ProviderFailed
from serve_app.settings import Settings
from serve_app.settings.access import serve_rules

DEADLINE_SECONDS = 5.0


def check_provider(settings: Settings) -> Iterator[Finding]:
    """Ask the provider of the settings for its metadata, and yield the findings; none if there is no provider."""
    if settings.serve.oidc is None:
        return
    try:
        rules = serve_rules(settings)
        require_provider(rules)
        assert rules.oidc is not None  # as in the settings
        found = asyncio.run(_describe(rules.oidc))
    except (BadSettings, ProviderFailed) as error:
        remedy = "correct serve.oidc or start the provider; until then, people can sign in with tokens only"
        yield Finding("openid provider", "problem", str(error), remedy)
        return
    yield Finding("openid provider", "ok", found)
    yield Finding(
        "redirect address",
        "ok",
        f"to register at the provider: {rules.oidc.redirect_url}, and after signing out: {rules.oidc.home}",
    )


async def _describe(rules: OidcRules) -> str:
    from serve_app.access.oidc.provider import Provider  # needs the extra

    found = await Provider(rules, DEADLINE_SECONDS).metadata()
    groups = ", ".join(sorted(rules.groups))
    out = "here and at the provider" if found.end_session_endpoint else "here only"
    return f"{rules.issuer}, keys: {len(found.keys)}; signs out {out}; groups with access: {groups}"
