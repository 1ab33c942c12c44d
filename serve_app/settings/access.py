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
    serve = settings.serve
    return Rules(
        host=serve.host,
        tokens_file=serve.tokens_file,
        allow_anonymous=serve.allow_anonymous,
        allowed_hosts=serve.allowed_hosts,
        external_url=settings.notify.external_url,
        trusted_proxies=tuple(map(str, serve.trusted_proxies)),
        proxy_user_header=serve.proxy_user_header,
        proxy_user_scopes=tuple(serve.proxy_user_scopes),
        oidc=_oidc_rules(settings),
    )


def require_usable(settings: Settings, hosts: Iterable[str]) -> None:
    """Refuse settings that cannot work on this machine, or that open the service to a network by accident.

    Args:
        hosts: addresses that the service will listen on.

    Raises:
        BadSettings: the tokens file, the provider or the certificate is unusable, or other machines could connect
            without a login.
    """
    rules = serve_rules(settings)
    require_protection(rules, hosts)
    Access(rules)  # raises its errors here
    require_provider(rules)
    require_certificate(settings.serve.certificate_file, settings.serve.key_file)


def _oidc_rules(settings: Settings) -> OidcRules | None:
    oidc, external_url = settings.serve.oidc, settings.notify.external_url
    if oidc is None:
        return None
    if external_url is None:
        raise BadSettings(
            "serve.oidc: notify.external_url is missing; set it to the URL at which browsers reach this service: the "
            "provider sends them back there"
        )
    return OidcRules(
        oidc.issuer,
        oidc.client_id,
        oidc.client_secret_file,
        external_url,
        {
            name: Grant(frozenset(group.scopes), None if group.meshes is None else frozenset(group.meshes))
            for name, group in oidc.groups.items()
        },
        name=oidc.name,
        scopes=oidc.scopes,
        groups_claim=oidc.groups_claim,
        user_claim=oidc.user_claim,
        valid_seconds=oidc.valid_seconds,
        ca_file=oidc.ca_file,
    )
