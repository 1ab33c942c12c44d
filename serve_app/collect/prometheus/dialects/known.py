"""The kinds of mesh that are known, in the order in which they are looked for."""

from serve_app.collect.prometheus.dialects.envoy import envoy
from serve_app.collect.prometheus.dialects.istio import istio
from serve_app.collect.prometheus.dialects.linkerd import linkerd
from serve_app.collect.prometheus.dialects.opentelemetry import opentelemetry

KNOWN = {one.name: one for one in (istio(ambient=True), istio(), opentelemetry(), linkerd(), envoy())}
