"""Access control: tokens, hosts, origins and trusted proxies, without Ray and without FastAPI.

``Access.check`` takes an ASGI scope and returns a :class:`Principal`, or raises an error of
``serve_app.errors``. It reads no body, so that a caller can refuse a request before any byte of its body arrives.
"""

from serve_app.access.control import COOKIE, COOKIE_SECONDS, Access, Principal, RequestHead
from serve_app.access.rules import Rules, is_loopback
from serve_app.access.tokens import Scope, Token

__all__ = [
    "COOKIE",
    "COOKIE_SECONDS",
    "Access",
    "Principal",
    "RequestHead",
    "Rules",
    "Scope",
    "Token",
    "is_loopback",
]
