"""Links for a service or an incident: to TAGAE's page, and to other tools."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import quote

from model.names import original_name
from serve_app.net.link_template import fill_template
from serve_app.settings import LinkSettings, Settings

MAX_URL = 2000  # characters; browsers and receivers take this many, and half a URL leads nowhere
LEAD = timedelta(minutes=15)  # how long before an incident's start its links begin


@dataclass(frozen=True, slots=True)
class LinkSubject:
    """The subject of links.

    Attributes:
        service: ``namespace/name``; empty: none.
        start, end: period to show; None: unknown.
        incident, kind: an incident's id and kind; empty: none.
        trace: id of a trace; empty: none.
    """

    mesh: str
    service: str = ""
    start: datetime | None = None
    end: datetime | None = None
    incident: str = ""
    kind: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Links:
    """The cluster's name, and the URLs of TAGAE and other tools.

    Attributes:
        external_url: TAGAE's base URL; empty: no links to it.
        templates: by name: ``dashboard``, ``traces``, ``logs``, ``trace``, ``runbook``.
        templates_by_mesh: all templates of meshes with their own links, in place of ``templates``.
    """

    cluster: str = "default"
    external_url: str = ""
    templates: Mapping[str, str] = field(default_factory=dict)
    templates_by_mesh: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, settings: Settings) -> "Links":
        """Return the links in the settings. A mesh's own link takes precedence over ``links``."""
        notify = settings.notify
        templates_by_mesh = {
            name: _templates(mesh.links, settings.links)
            for name, mesh in settings.meshes.items()
            if mesh.links != LinkSettings()
        }
        return cls(notify.cluster, notify.external_url or "", _templates(settings.links), templates_by_mesh)

    def tools(self, subject: LinkSubject) -> dict[str, str]:
        """Return the URLs of other tools by name; a link with an unknown value is omitted."""
        namespace, _, service = subject.service.partition("/")
        values = {
            "cluster": self.cluster,
            "mesh": subject.mesh,
            "namespace": original_name(namespace),  # as other tools know it
            "service": original_name(service),
            "start_ms": _milliseconds(subject.start),
            "end_ms": _milliseconds(subject.end),
            "incident": subject.incident,
            "kind": subject.kind,
            "trace": subject.trace,
        }
        templates = self.templates_by_mesh.get(subject.mesh, self.templates)
        urls = {name: fill_template(template, values) for name, template in templates.items()}
        return {name: url for name, url in urls.items() if url}

    def urls(self, subject: LinkSubject) -> dict[str, str]:
        """Return the URLs in an incident's alert: ``page_url``, ``dashboard_url``, ``traces_url``, ``logs_url``,
        ``runbook_url`` and ``verdict_url``, without empty ones and those that are too long. Without a dashboard of its
        own, ``dashboard_url`` is the page."""
        root = self.external_url.rstrip("/")
        mesh, incident = (quote(text, safe="") for text in (subject.mesh, subject.incident))
        page = root and f"{root}/#mesh={mesh}&incident={incident}"
        urls = {
            "page_url": page,
            "dashboard_url": page,
            **{f"{name}_url": url for name, url in self.tools(subject).items()},
            "verdict_url": self.verdict_url(subject.mesh),
        }
        return {name: url for name, url in urls.items() if 0 < len(url) <= MAX_URL}

    def verdict_url(self, mesh: str) -> str:
        """Return the URL of the newest verdict; empty without an external URL."""
        root = self.external_url.rstrip("/")
        return root and f"{root}/v1/meshes/{quote(mesh, safe='')}/verdict"


def _templates(*settings: LinkSettings) -> dict[str, str]:
    """Return the templates by name. The first settings that have one take precedence."""
    templates = {
        name: next(filter(None, (getattr(links, name) for links in settings)), None)
        for name in LinkSettings.model_fields
    }
    return {name: template for name, template in templates.items() if template}


def incident_subject(
    mesh: str, incident: str, service: str, kind: str, since: datetime, until: datetime
) -> LinkSubject:
    """Return an incident as the subject of links: its first service, from a quarter of an hour before its start."""
    return LinkSubject(mesh, service, since - LEAD, max(until, since), incident, kind)


def _milliseconds(at: datetime | None) -> str:
    return "" if at is None else str(round(1000 * at.timestamp()))
