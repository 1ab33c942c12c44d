"""Access rules from settings."""

from serve_app.access.grants import Grant
from serve_app.access.oidc.rules import OidcRules
from serve_app.access.rules import Rules
from serve_app.errors import BadSettings
from serve_app.settings.settings import Settings


def serve_rules(settings: Settings) -> Rules:
    """Access rules of the service.

    Raises:
        BadSettings: there is a provider to sign in at, but no URL for its answers.
    """
    chosen = settings.serve
    return Rules(
        chosen.host,
        chosen.tokens_file,
        chosen.allow_anonymous,
        chosen.allowed_hosts,
        settings.notify.external_url,
        tuple(map(str, chosen.trusted_proxies)),
        chosen.proxy_user_header,
        tuple(chosen.proxy_user_scopes),
        _oidc_rules(settings),
    )


def _oidc_rules(settings: Settings) -> OidcRules | None:
    chosen, external_url = settings.serve.oidc, settings.notify.external_url
    if chosen is None:
        return None
    if external_url is None:
        raise BadSettings(
            "serve.oidc: expected notify.external_url too, got none; set it to the URL at which browsers reach this "
            "service: the provider sends them back there"
        )
    return OidcRules(
        chosen.issuer,
        chosen.client_id,
        chosen.client_secret_file,
        external_url,
        {
            name: Grant(frozenset(group.scopes), None if group.meshes is None else frozenset(group.meshes))
            for name, group in chosen.groups.items()
        },
        chosen.name,
        chosen.scopes,
        chosen.groups_claim,
        chosen.user_claim,
        chosen.valid_seconds,
        chosen.ca_file,
    )
