"""Checks ID tokens (OpenID Connect Core, 3.1.3.7)."""

from collections.abc import Mapping, Sequence
from typing import Any

from joserfc import jwk, jws
from joserfc.errors import JoseError
from joserfc.jwt import JWTClaimsRegistry, decode

# Only signatures with a key pair: `none` has no signature, and HMAC would use the public key as a shared secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
KEY_TYPES = ("RSA", "EC", "OKP")
SKEW_SECONDS = 60  # maximum difference between the provider's clock and ours
MAX_TOKEN_LENGTH = 64 * 1024
MAX_KEYS = 100  # of a provider


class BadToken(Exception):
    """The ID token is not valid for this sign-in. The message contains no secret."""


class UnknownKey(BadToken):
    """The provider has no such key; it may have changed its keys meanwhile."""


def import_keys(document: Any) -> tuple[jwk.Key, ...]:
    """The provider's public keys that can verify signatures; others are left out.

    Args:
        document: a JWK set (RFC 7517).
    """
    entries = document.get("keys") if isinstance(document, dict) else None
    keys = []
    for entry in (entries if isinstance(entries, list) else [])[:MAX_KEYS]:
        if isinstance(entry, dict) and entry.get("kty") in KEY_TYPES and entry.get("use", "sig") == "sig":
            try:
                keys.append(jwk.import_key(entry))
            except (JoseError, ValueError, TypeError):  # an unknown curve or key type
                continue
    return tuple(keys)


def check_id_token(
    token: str, keys: Sequence[jwk.Key], *, issuer: str, client_id: str, nonce: str, now: float
) -> Mapping[str, Any]:
    """Check an ID token, and return its claims.

    Args:
        now: s since 1970.

    Raises:
        UnknownKey: it was signed with another key.
        BadToken: it is invalid, or belongs to another sign-in.
    """
    if len(token) > MAX_TOKEN_LENGTH:
        raise BadToken(f"expected at most {MAX_TOKEN_LENGTH} characters, got {len(token)}")
    try:
        # The provider decides on the size of headers: some contain certificates.
        registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        registry.max_header_length = MAX_TOKEN_LENGTH
        claims = decode(token, lambda message: _find_key(keys, message.headers()), ALGORITHMS, registry).claims
        JWTClaimsRegistry(
            now=int(now),
            leeway=SKEW_SECONDS,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "value": client_id},
            nonce={"essential": True, "value": nonce},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        ).validate(claims)
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise BadToken(f"{type(error).__name__}: {error}"[:200]) from None
    audience, party = claims["aud"], claims.get("azp")
    if party is not None and party != client_id:
        raise BadToken(f"azp: expected {client_id!r}, got {str(party)[:80]!r}")
    if isinstance(audience, list) and len(audience) > 1 and party is None:
        raise BadToken("azp: missing in a token for several audiences")
    for name in ("iss", "nonce"):  # the library also takes a list that contains the value
        if not isinstance(claims[name], str):
            raise BadToken(f"{name}: expected text")
    return claims


def _find_key(keys: Sequence[jwk.Key], header: Mapping[str, Any]) -> jwk.Key:
    """The key that a header names. Without a key id, the provider must have exactly one key."""
    name, algorithm = header.get("kid"), header.get("alg")
    matches = [key for key in keys if name is None or key.kid == name]
    if len(matches) != 1:
        raise UnknownKey(f"kid: expected the id of one of the provider's keys, got {str(name)[:80]!r}")
    if matches[0].alg not in (None, algorithm):
        raise BadToken(f"alg: expected {matches[0].alg}, which its key is for, got {str(algorithm)[:20]!r}")
    return matches[0]
