"""Reports the drift of a running service's meshes as findings."""

from collections.abc import Iterator

from model.drift.measures import Reference
from model.names import list_first
from serve_app.api.client import Client
from serve_app.api.schemas.drift import DataQualityDocument, DriftDocument
from serve_app.collect.base import Finding

MAX_NAMED = 5


def check_drift(client: Client, mesh: str | None = None) -> list[Finding]:
    """Return the findings on one mesh, or on all meshes that the client may see.

    Raises:
        ServeError: the service does not answer, or has no such mesh.
    """
    names = [status.mesh for status in client.meshes() if status.sequence] if mesh is None else [mesh]
    if not names:
        return [Finding("drift", "ok", "the service has no mesh yet")]
    return [finding for name in names for finding in drift_findings(name, client.drift(name))]


def drift_findings(mesh: str, drift: DriftDocument) -> Iterator[Finding]:
    """Yield findings on a mesh's drift and data quality."""
    subject = f"drift of {mesh}"
    for advice in drift.advice:
        yield Finding(subject, "warning", advice.text, f"{advice.purpose}: {advice.command}")
    if drift.judged_until is None:
        yield Finding(subject, "ok", "not known yet; it is compared with training after a day, with itself after five")
    elif not drift.advice:
        is_week_known = any(
            measure.distance is not None for measure in drift.measures if measure.reference == Reference.WEEK
        )
        references = "training and its own last week" if is_week_known else "training; its own week is not known yet"
        yield Finding(subject, "ok", f"none until {drift.judged_until:%Y-%m-%d %H:%M} UTC, compared with {references}")
    yield from _quality(f"data of {mesh}", drift.quality)


def _quality(subject: str, quality: DataQualityDocument) -> Iterator[Finding]:
    if quality.stale:
        yield Finding(
            subject,
            "warning",
            f"nothing changes at {list_first(quality.stale, MAX_NAMED)}",
            "their exporters are stuck, or their last values are repeated; restart or repair them",
        )
    if quality.constant:
        constant = list_first([f"{series.metric} of {series.service}" for series in quality.constant], MAX_NAMED)
        remedy = "a placeholder, or a gauge that nothing updates; leave such a metric out"
        yield Finding(subject, "warning", f"constant: {constant}", remedy)
    increased = (gap for gap in quality.missing if gap.before is None or gap.share > gap.before)
    if missing := [f"{gap.channel} of {gap.share:.0%}" for gap in increased]:
        yield Finding(subject, "ok", f"missing: {list_first(missing, MAX_NAMED)}")
