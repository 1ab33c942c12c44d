"""Plugins: the stores, sources and receivers that settings choose by name, from this package and from others.

The setting names the kind of store, source or receiver (``store.kind = "files"``); the plugin provides it. Each of our
plugins is one line in a table below. A package adds plugins as entry points of the same group, in its
``pyproject.toml``::

    [project.entry-points."tagae.stores"]
    files = "tagae_files.store:FILES"

A plugin is imported when the settings name it, so that the others cost nothing and need none of their libraries.
``examples/tagae-files`` has one plugin of each group.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from serve_app.errors import BadSettings

O = TypeVar("O", bound=BaseModel)  # noqa: E741
K = TypeVar("K")


@dataclass(frozen=True, kw_only=True)
class Plugin(Generic[O]):
    """A plugin with the pydantic model of its options."""

    options: type[O]

    def check_options(self, values: Mapping[str, Any]) -> O:
        """Validate and return options.

        Raises:
            ValueError: an option is unknown, missing or has an impossible value.
        """
        try:
            return self.options.model_validate(values)
        except ValidationError as error:
            raise ValueError("; ".join(map(self._describe, error.errors()))) from None

    def _describe(self, error: ErrorDetails) -> str:
        name = ".".join(map(str, error["loc"])) or "options"
        if error["type"] == "extra_forbidden":
            return f"{name}: no such option; expected one of {', '.join(self.options.model_fields)}"
        return f"{name}: {error['msg'].removeprefix('Value error, ')}"


@dataclass(frozen=True)
class PluginTable:
    """All plugins of one group.

    Attributes:
        setting: the setting that chooses a plugin, for messages.
        own: our plugins, as ``module:name``.
    """

    setting: str
    group: str
    own: Mapping[str, str]

    def names(self) -> list[str]:
        """Names of all plugins, ours first."""
        return [*self.own, *sorted({entry.name for entry in entry_points(group=self.group)} - self.own.keys())]

    def load_own(self, name: str) -> Any:
        """Import one of our plugins."""
        return EntryPoint(name, self.own[name], self.group).load()

    def check_name(self, name: str) -> str:
        """Return the plugin's name. Another package's plugin is imported, to see that it works.

        Raises:
            ValueError: there is no such plugin, or its package is broken.
        """
        if name not in self.own:
            self._import(name, Plugin)
        return name

    def check_options(self, name: str, values: Mapping[str, Any]) -> None:
        """Check the options of a plugin.

        Raises:
            ValueError: an unknown name, or a wrong option.
        """
        self._import(name, Plugin).check_options(values)

    def load(self, name: str, kind: type[K]) -> K:
        """Return a plugin.

        Raises:
            BadSettings: there is no such plugin, or its package is broken.
        """
        try:
            return self._import(name, kind)
        except ValueError as error:
            raise BadSettings(f"{self.setting}: {error}") from error

    def _import(self, name: str, kind: type[K]) -> K:
        entry = self._find(name)
        try:
            plugin = entry.load()
        except Exception as error:  # whatever the import of another package may raise
            raise _broken(entry, f"{type(error).__name__}: {error}") from error
        if not isinstance(plugin, kind):
            raise _broken(entry, f"a {type(plugin).__name__}, not a {kind.__name__}")
        return plugin

    def _find(self, name: str) -> EntryPoint:
        if name in self.own:
            return EntryPoint(name, self.own[name], self.group)
        entries = list(entry_points(group=self.group, name=name))
        if not entries:
            *names, last = map(repr, self.names())
            raise ValueError(
                f"expected {', '.join(names)} or {last}; for another kind, install the package that provides it as "
                f"an entry point of {self.group}"
            )
        packages = sorted({_package(entry) for entry in entries})
        if len(packages) > 1:
            raise ValueError(
                f"expected one package with the plugin {name!r}, got {' and '.join(packages)}; uninstall one"
            )
        return entries[0]


def _broken(entry: EntryPoint, problem: str) -> ValueError:
    return ValueError(
        f"expected the plugin {entry.name!r} of the package {_package(entry)} in {entry.value}, got {problem}; repair "
        "or uninstall that package"
    )


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "tagae"


STORES = PluginTable(
    "store.kind",
    "tagae.stores",
    {
        "local": "serve_app.stores.sqlite.store:LOCAL",
        "redis": "serve_app.stores.redis.plugin:REDIS",
    },
)
# Our sources are dialects of Prometheus, in the order in which they are looked for. Kuma, Consul and Cilium export
# Envoy's own metrics too, so they come before it. Ingress controllers come last: they stand in front of another kind
# of mesh, or alone.
_DIALECTS = "serve_app.collect.prometheus.dialects"
SOURCES = PluginTable(
    "meshes.NAME.source",
    "tagae.sources",
    {
        "istio-ambient": f"{_DIALECTS}.istio:istio_ambient",
        "istio": f"{_DIALECTS}.istio:istio",
        "opentelemetry": f"{_DIALECTS}.opentelemetry:opentelemetry",
        "linkerd": f"{_DIALECTS}.linkerd:linkerd",
        "kuma": f"{_DIALECTS}.kuma:kuma",
        "consul": f"{_DIALECTS}.consul:consul",
        "hubble": f"{_DIALECTS}.hubble:hubble",
        "envoy": f"{_DIALECTS}.envoy:envoy",
        "opentelemetry-http": f"{_DIALECTS}.opentelemetry_http:opentelemetry_http",
        "span-metrics": f"{_DIALECTS}.span_metrics:span_metrics",
        "nginx-ingress": f"{_DIALECTS}.nginx_ingress:nginx_ingress",
        "traefik": f"{_DIALECTS}.traefik:traefik",
        "contour": f"{_DIALECTS}.contour:contour",
        "envoy-gateway": f"{_DIALECTS}.envoy_gateway:envoy_gateway",
        "haproxy-ingress": f"{_DIALECTS}.haproxy_ingress:haproxy_ingress",
        "kong": f"{_DIALECTS}.kong:kong",
    },
)
RECEIVERS = PluginTable(
    "notify.receivers",
    "tagae.receivers",
    {
        "webhook": "serve_app.alerts.receivers.webhook:WEBHOOK",
        "grafana": "serve_app.alerts.receivers.grafana:GRAFANA",
        "pagerduty": "serve_app.alerts.receivers.pagerduty:PAGERDUTY",
        "slack": "serve_app.alerts.receivers.slack_app:SLACK",
    },
)
