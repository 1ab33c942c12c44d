"""Evidence by hand, and the verdicts about it."""

import numpy as np
import torch

from model.decision.meta_model import MetaModel
from model.decision.verdict_building import build_verdict
from model.evidence.explanations import Explanation, Fact
from model.evidence.gather import Evidence
from model.evidence.kinds import RESOURCES, EvidenceKind, K
from model.incidents.memory import IncidentMemory
from model.incidents.policy import AlertPolicy, VerdictContext
from model.incidents.threshold import LASTING_DECADES
from model.verdict import Verdict
from tests.model.model_cases import at

LEVEL = 5.0
POLICY = AlertPolicy(confirm=2, confirm_of=3, doubtful=0)  # of two snapshots, to keep the tests short


def meta() -> MetaModel:
    torch.manual_seed(0)
    return MetaModel().eval()


def evidence(*page: float, calls: tuple[tuple[int, int], ...] = (), services: int = 20, total: int = 20) -> Evidence:
    """Return candidates with these page scores, due to errors."""
    count = len(page)
    kinds = np.zeros((count, K), np.float32)
    kinds[:, EvidenceKind.ERROR] = page
    return Evidence(
        names=tuple(f"a/s{i}" for i in range(count)),
        kinds=kinds,
        page=np.array(page, np.float32),
        affected=np.array(page, np.float32),
        calls=np.array(calls, np.int64).reshape(-1, 2).T,
        explanation=Explanation(
            reasons=((Fact("error_rate", 0.25, 0.01),),) * count,
            gone=np.zeros(count, np.int64),
            load=np.ones(count, np.float32),
            context={},
        ),
        counts=tuple(int((np.array(page) > x).sum()) for x in (2, 3, 5)),  # type: ignore[arg-type]
        services=services,
        total=total,
        notice=np.zeros(count, np.float32),
        inbound_load=np.ones(count, np.float32),
    )


def when(index: int, learned: int = 100, missing: tuple[int, ...] = ()) -> VerdictContext:
    return VerdictContext(at(index), index + 1, learned, 15.0, LEVEL, LEVEL, missing)


def judge(
    *scenes: Evidence,
    learned: int = 100,
    missing: tuple[int, ...] = (),
    policy: AlertPolicy = POLICY,
    memory: IncidentMemory | None = None,
    first: int = 0,
) -> tuple[list[Verdict], IncidentMemory]:
    """Return the verdicts about snapshots from the number ``first`` on, and what is remembered after them."""
    memory, verdicts = memory or IncidentMemory(), []
    for i, scene in enumerate(scenes, first):
        verdict, memory = build_verdict(meta(), scene, memory, policy, when(i, learned, missing))
        verdicts.append(verdict)
    return verdicts, memory


def short_of_resources(page: float) -> Evidence:
    """Return evidence of one service whose resources alone make this page score."""
    scene = evidence(page)
    scene.kinds[:, EvidenceKind.ERROR], scene.kinds[:, EvidenceKind.RESOURCES] = 0, page / RESOURCES
    return scene


MODERATE = LEVEL - LASTING_DECADES + 0.5
