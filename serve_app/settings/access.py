"""The rules of access as the settings have them."""

from serve_app.access.rules import Rules
from serve_app.settings.settings import Settings


def serve_rules(settings: Settings) -> Rules:
    """Those of the service."""
    front = settings.serve
    return Rules(
        "serve",
        front.host,
        front.tokens_file,
        front.allow_anonymous,
        front.allowed_hosts,
        settings.notify.external_url,
        tuple(map(str, front.trusted_proxies)),
        front.proxy_user_header,
        tuple(front.proxy_user_scopes),
    )


def sidecar_rules(settings: Settings) -> Rules:
    """Those of the sidecar, whose callers are programs."""
    chosen = settings.sidecar
    return Rules("sidecar", chosen.host, chosen.tokens_file, chosen.allow_anonymous, chosen.allowed_hosts)
