"""The known kinds of mesh, in the order in which they are detected."""

from collections.abc import Mapping

from serve_app.collect.prometheus.query import Dialect
from serve_app.plugins import SOURCES

KNOWN: Mapping[str, Dialect] = {name: SOURCES.load_own(name)() for name in SOURCES.own}
# The kinds whose recording rules are shipped in one file. The rules of all kinds would exceed 256 KiB, the limit of
# `kubectl apply`.
SHIPPED_RULES = ("istio", "opentelemetry", "linkerd", "envoy")
