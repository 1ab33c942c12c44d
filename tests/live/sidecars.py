"""Envoy beside each service: a cluster for each destination, and the cluster ``inbound`` for incoming requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.live.programs import LOOPBACK, Program, envoy_binary
from tests.live.topology import NAMESPACE

INBOUND = "inbound"
BOUNDS_MS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000, 5000, 10000)
FILTERS = "type.googleapis.com/envoy.extensions.filters."
FLUSH_SECONDS = (
    0.2  # Envoy updates histograms on its admin page at a flush: every 5 s by default, longer than our scrape interval
)
# Statistics of each cluster that are read. Envoy has 1,500 others.
COUNTED = rf"cluster\.({INBOUND}|outbound_[^.]+)\.upstream_(rq_(completed|total|time|[0-9]xx)|cx_active)"


def outbound(destination: str) -> str:
    """Return the name of a destination's cluster. It has no dots, because these would change the metrics' names."""
    return f"outbound_{NAMESPACE}_{destination}"


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Ports of one sidecar.

    Attributes:
        service: that it belongs to.
        admin, inbound, outbound: its ports.
        local: the service's own port.
        destinations: ports of other sidecars' ``inbound`` by service.
    """

    service: str
    admin: int
    inbound: int
    outbound: int
    local: int
    destinations: Mapping[str, int]

    def start(self, folder: Path) -> Program:
        """Return the process. It is ready when :meth:`ready` answers."""
        config = folder / f"{self.service}.json"
        config.write_bytes(msgspec.json.encode(self.config()))
        command = [str(envoy_binary()), "--config-path", str(config), "--concurrency", "1", "--disable-hot-restart"]
        return Program(
            f"sidecar of {self.service}", [*command, "--log-level", "warning"], folder / f"{self.service}.log"
        )

    @property
    def ready(self) -> str:
        """Return the URL that answers 200 once Envoy serves."""
        return f"http://{LOOPBACK}:{self.admin}/ready"

    def config(self) -> dict[str, Any]:
        """Return a static configuration of Envoy."""
        ends = {outbound(name): port for name, port in self.destinations.items()}
        hosts = [_host(name, [name], outbound(name)) for name in self.destinations]
        return {
            "node": {"id": self.service, "cluster": NAMESPACE},
            "admin": {"address": _address(self.admin)},
            "stats_flush_interval": f"{FLUSH_SECONDS}s",
            "stats_config": {
                "stats_matcher": {"inclusion_list": {"patterns": [{"safe_regex": {"regex": COUNTED}}]}},
                "histogram_bucket_settings": [
                    {"match": {"suffix": "upstream_rq_time"}, "buckets": [float(bound) for bound in BOUNDS_MS]}
                ],
            },
            "static_resources": {
                "listeners": [
                    _listener("inbound", self.inbound, [_host(INBOUND, ["*"], INBOUND)]),
                    _listener("outbound", self.outbound, hosts),
                ],
                "clusters": [_cluster(name, port) for name, port in [(INBOUND, self.local), *ends.items()]],
            },
        }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": LOOPBACK, "port_value": port}}


def _host(name: str, domains: Sequence[str], cluster: str) -> dict[str, Any]:
    route = {"match": {"prefix": "/"}, "route": {"cluster": cluster, "timeout": "4s"}}
    return {"name": name, "domains": list(domains), "routes": [route]}


def _listener(name: str, port: int, hosts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    manager = "network.http_connection_manager.v3.HttpConnectionManager"
    http = {
        "@type": FILTERS + manager,
        "stat_prefix": name,
        "route_config": {"name": name, "virtual_hosts": list(hosts)},
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": FILTERS + "http.router.v3.Router"}}
        ],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": http}]
    return {"name": name, "address": _address(port), "filter_chains": [{"filters": filters}]}


def _cluster(name: str, port: int) -> dict[str, Any]:
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": _address(port)}}]}]
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": endpoints},
    }
