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

    def check(self, **counts: int) -> None:
        """Check counts of a document, such as ``services=60``.

        Raises:
            DocumentTooLarge: a count is above its limit.
        """
        for what, count in counts.items():
            limit = getattr(self, f"max_{what}")
            if limit is not None and count > limit:
                is_set = what in ("services", "calls")
                advice = "raise limits.max_services or split the mesh" if is_set else "send fewer"
                raise DocumentTooLarge(
                    f"{what}: {count} are too many: the limit is {limit}; {advice}", pointer=f"/{what}"
                )
