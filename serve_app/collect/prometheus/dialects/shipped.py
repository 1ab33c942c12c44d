"""The kinds of mesh that are known, in the order in which they are looked for."""

from collections.abc import Mapping

from serve_app.collect.prometheus.query import Dialect
from serve_app.plugins import SOURCES

KNOWN: Mapping[str, Dialect] = {name: SOURCES.load_own(name)() for name in SOURCES.own}
# The kinds whose recording rules are shipped in one file. `kubectl apply` refuses objects above 256 KiB; the rules of
# all kinds are larger.
SHIPPED_RULES = ("istio", "opentelemetry", "linkerd", "envoy")
