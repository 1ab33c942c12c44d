"""Access rules from settings."""

from collections.abc import Iterable

from serve_app.access.control import Access
from serve_app.access.oidc.rules import OidcRules
from serve_app.access.rules import Rules, require_certificate, require_protection, require_provider
from serve_app.access.tokens import Grant
from serve_app.errors import BadSettings
from serve_app.settings.settings import Settings


def serve_rules(settings: Settings) -> Rules:
    """The service's access rules.

    Raises:
        BadSettings: there is a sign-in provider, but no URL for its answers.
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


def require_usable(settings: Settings, hosts: Iterable[str]) -> None:
    """Before anything starts, refuse settings that cannot work on this machine or open the service to a network by
    accident.

    Args:
        hosts: addresses that the service will listen on.

    Raises:
        BadSettings: the tokens file, the provider or the certificate cannot be used, or others could connect without a
            login.
    """
    rules = serve_rules(settings)
    require_protection(rules, hosts)
    Access(rules)  # raises its errors here
    require_provider(rules)
    require_certificate(settings.serve.certificate_file, settings.serve.key_file)


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
