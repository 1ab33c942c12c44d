"""Evidence for and against the services that are worth a look."""

from dataclasses import dataclass

from model.evidence.attribution import Attribution
from model.evidence.explanations import Explanation
from model.evidence.resources import Trend
from model.evidence.traffic import TrafficChange
from model.features import Array
from model.incidents.schedule import Schedule
from model.snapshot import BoolArray, IntArray
from model.verdict import Silence


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The M candidates with the most evidence, and what the meta-model needs to know about the other services.

    Attributes:
        names: ids of the candidates, worst first.
        kinds: float32 ``[M, K]``, surprises by :class:`EvidenceKind`.
        remote: bool ``[M]``: see ``ScoredMesh.remote``.
        root_cause_logit: ``[M]`` logits of the network.
        page: ``[M]`` page scores.
        affected: ``[M]`` the strongest of ``AFFECTED``.
        calls: int64 ``[2, C]`` calls among the candidates, as rows.
        explanation: the reasons for each candidate.
        counts: number of services with a page score above 2, 3 and 5.
        services: number of scored services.
        total: number of services present.
        notice: ``[M]`` surprise of resources that are running out, for notices.
        pushed: ``[M]`` requests relative to usual, without the retries of what a candidate fails itself: what others
            send it.
        trends: resources that rise steadily; ``row`` is a row of the candidates.
        silence: the services whose telemetry is missing, None if there are none.
        unseen: services of open incidents whose telemetry is missing.
        traffic: requests from outside that are not as usual.
        rolling: ``[M]`` which of them are being replaced by a new version; None: none is.
        schedule: of regular work, this snapshot included; None: unknown.
        attribution: what each of ``calls`` explains of its caller's symptoms; None: unknown.
    """

    names: tuple[str, ...]
    kinds: Array
    remote: BoolArray
    root_cause_logit: Array
    page: Array
    affected: Array
    calls: IntArray
    explanation: Explanation
    counts: tuple[int, int, int]
    services: int
    total: int
    notice: Array
    pushed: Array
    trends: tuple[Trend, ...] = ()
    silence: Silence | None = None
    unseen: frozenset[str] = frozenset()
    traffic: tuple[TrafficChange, ...] = ()
    rolling: BoolArray | None = None
    schedule: Schedule | None = None
    attribution: Attribution | None = None
