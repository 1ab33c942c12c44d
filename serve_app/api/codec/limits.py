"""The largest counts that one document may have."""

from dataclasses import dataclass

from serve_app.errors import DocumentTooLarge


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest counts that one document may have; None: any."""

    max_services: int | None = None
    max_calls: int | None = None
    max_changes: int | None = None
    max_policies: int | None = None
    max_snapshots: int | None = None

    def check(self, services: int = 0, calls: int = 0, changes: int = 0, policies: int = 0) -> None:
        """Check the counts of one snapshot.

        Raises:
            DocumentTooLarge: a count is above its limit.
        """
        counts = {"services": services, "calls": calls, "changes": changes, "policies": policies}
        for what, count in counts.items():
            if not self.allows(what, count):
                raise self.refuse(what, str(count))

    def check_snapshots(self, count: int) -> None:
        """Check the number of snapshots in one body. Raises ``DocumentTooLarge``."""
        if not self.allows("snapshots", count):
            raise self.refuse("snapshots", str(count))

    def allows(self, what: str, count: int) -> bool:
        """Whether a document may have this many of ``what``, such as ``services``."""
        limit = getattr(self, f"max_{what}")
        return limit is None or count <= limit

    def refuse(self, what: str, came: str) -> DocumentTooLarge:
        """The error for too many of ``what``."""
        advice = "split the mesh" if what in ("services", "calls") else "send fewer"
        limit = getattr(self, f"max_{what}")
        return DocumentTooLarge(
            f"{what}: expected at most {limit}, got {came}; raise limits.max_{what} or {advice}", pointer=f"/{what}"
        )
