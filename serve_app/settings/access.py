"""Access rules from settings."""

from serve_app.access.oidc.rules import OidcRules
from serve_app.access.rules import Rules
from serve_app.access.tokens import Grant
from serve_app.errors import BadSettings
from serve_app.settings.settings import Settings


def serve_rules(settings: Settings) -> Rules:
    """Access rules of the service.

    Raises:
        BadSettings: there is a provider to sign in at, but no URL for its answers.
    """
    chosen = settings.serve
    return Rules(
        host=chosen.host,
        tokens_file=chosen.tokens_file,
        allow_anonymous=chosen.allow_anonymous,
        allowed_hosts=chosen.allowed_hosts,
        external_url=settings.notify.external_url,
        trusted_proxies=tuple(map(str, chosen.trusted_proxies)),
        proxy_user_header=chosen.proxy_user_header,
        proxy_user_scopes=tuple(chosen.proxy_user_scopes),
        oidc=_oidc_rules(settings),
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
        name=chosen.name,
        scopes=chosen.scopes,
        groups_claim=chosen.groups_claim,
        user_claim=chosen.user_claim,
        valid_seconds=chosen.valid_seconds,
        ca_file=chosen.ca_file,
    )
