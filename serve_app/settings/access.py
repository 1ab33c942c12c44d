"""Access rules from settings."""

from serve_app.access.rules import Rules
from serve_app.settings.settings import Settings


def serve_rules(settings: Settings) -> Rules:
    """Access rules of the service."""
    chosen = settings.serve
    return Rules(
        "serve",
        chosen.host,
        chosen.tokens_file,
        chosen.allow_anonymous,
        chosen.allowed_hosts,
        settings.notify.external_url,
        tuple(map(str, chosen.trusted_proxies)),
        chosen.proxy_user_header,
        tuple(chosen.proxy_user_scopes),
    )


def sidecar_rules(settings: Settings) -> Rules:
    """Access rules of the sidecar."""
    chosen = settings.sidecar
    return Rules("sidecar", chosen.host, chosen.tokens_file, chosen.allow_anonymous, chosen.allowed_hosts)
