"""The kinds of mesh that are known, in the order in which they are looked for.

Ingress controllers come last: they stand in front of a mesh of another kind, or alone.
"""

from serve_app.collect.prometheus.dialects.consul import consul
from serve_app.collect.prometheus.dialects.envoy import envoy
from serve_app.collect.prometheus.dialects.hubble import hubble
from serve_app.collect.prometheus.dialects.istio import istio
from serve_app.collect.prometheus.dialects.kuma import kuma
from serve_app.collect.prometheus.dialects.linkerd import linkerd
from serve_app.collect.prometheus.dialects.nginx_ingress import nginx_ingress
from serve_app.collect.prometheus.dialects.opentelemetry import opentelemetry
from serve_app.collect.prometheus.dialects.opentelemetry_http import opentelemetry_http
from serve_app.collect.prometheus.dialects.span_metrics import span_metrics
from serve_app.collect.prometheus.dialects.traefik import traefik

# Kuma, Consul and Cilium export Envoy's own metrics too, so they come before it.
KNOWN = {
    one.name: one
    for one in (
        istio(ambient=True),
        istio(),
        opentelemetry(),
        linkerd(),
        kuma(),
        consul(),
        hubble(),
        envoy(),
        opentelemetry_http(),
        span_metrics(),
        nginx_ingress(),
        traefik(),
    )
}
# The kinds whose recording rules are shipped in one file. `kubectl apply` refuses objects above 256 KiB; the rules of
# all kinds are larger.
SHIPPED_RULES = ("istio", "opentelemetry", "linkerd", "envoy")
