"""A finding of the doctor."""

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        subject: what was checked.
        outcome: a ``problem`` keeps the service from working as configured, a ``warning`` does not.
        found: the result.
        remedy: what to do; empty if all is well.
        toml: the lines of `tagae.toml` that fix it; empty if no setting does.
    """

    subject: str
    outcome: Outcome
    found: str
    remedy: str = ""
    toml: str = ""
