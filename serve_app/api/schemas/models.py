"""Documents for models: their cards, and which meshes use which version."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from model.names import MESH_NAME
from serve_app.api.schemas.base import MAX_REASON, Document, Instant, KeptDocument, Text
from serve_app.api.schemas.views import FeatureSchemaDocument

ModelVersion = Annotated[
    str,
    Field(
        pattern=r"^[0-9a-f]{16}$",
        description="version of a model: the digest of its weights, which verdicts name as `model`",
        examples=["20197a285a383037"],
    ),
]
MeshOfModel = Annotated[
    str,
    Field(
        min_length=1,
        max_length=63,
        json_schema_extra={"pattern": f"^{MESH_NAME}$"},  # documented here, checked by check_mesh_name
    ),
]


class ModelCard(KeptDocument):
    """A model without its weights. The registry has one card beside each weights file."""

    version: ModelVersion
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the weights file")
    size_bytes: int = Field(ge=0, description="size of this file")
    created_at: Instant
    parent: ModelVersion | None = Field(None, description="version that it was made to replace; null: unknown")
    network: str = Field(description="class of the network, as `module:Class`")
    architecture: dict[str, float] = Field(description="sizes of the network, by name")
    schema_version: int = Field(description="of the features")
    features: FeatureSchemaDocument = Field(description="inputs that it reads")
    data: dict[str, str] = Field(description="how it was trained: seed, data, steps, versions")
    figures: dict[str, float] = Field(description="results of its training, by name; empty: unknown")


class ModelPin(KeptDocument):
    """A version of the registry, and the content that it must have."""

    version: ModelVersion
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of its weights; other content is refused")


OfSettings = Annotated[
    ModelPin | None, Field(description="null: the weights of the settings, or the weights that TAGAE comes with")
]


class TrialDocument(KeptDocument):
    """A candidate beside the model that it may replace. In each mesh, one of them makes the verdicts, and the other
    scores the same snapshots without alerts."""

    candidate: OfSettings
    baseline: OfSettings
    share: float = Field(ge=0, le=1, description="share of the meshes that use the candidate; 0: a shadow")
    since: Instant = Field(description="when it got this share")
    by: str = Field("", description="name of the user or token; empty: unknown, or the rule of the settings")


class RolloutAction(StrEnum):
    """A change of the rollout."""

    CANARY = "canary"
    PROMOTE = "promote"
    ROLLBACK = "rollback"


class RolloutEvent(KeptDocument):
    """A change of the rollout, in its history."""

    at: Instant
    action: RolloutAction = Field(
        description="`canary`: a trial began or got another share; `promote`: all meshes use it, or one does; "
        "`rollback`: back to the model before"
    )
    model: OfSettings = Field(description="model that the meshes changed to, or that began a trial")
    share: float | None = Field(None, description="of the meshes; null: of all")
    mesh: str = Field("", description="the only mesh that changed; empty: all")
    by: str = Field("", description="name of the user or token; empty: unknown, or the rule of the settings")
    reason: str = Field("", description="why; empty: a person did it")


class RolloutDocument(KeptDocument):
    """Which mesh uses which model. Meshes with weights in the settings always use those."""

    active: OfSettings = None
    previous: OfSettings = None
    trial: TrialDocument | None = Field(None, description="null: no candidate is tried")
    meshes: dict[str, ModelPin] = Field(default_factory=dict, description="models of single meshes, by name")
    history: list[RolloutEvent] = Field(default_factory=list, description="the last changes, newest last")


class ModelsDocument(Document):
    """The models of the registry, and which mesh uses which."""

    models: list[ModelCard] = Field(description="oldest first")
    rollout: RolloutDocument
    pinned: list[str] = Field(description="meshes with weights in the settings, which no rollout changes; `*`: all")


class CanaryDocument(Document):
    """How many meshes try a candidate."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}, {"share": 0.1}, {"share": 0}]})

    share: float | None = Field(
        None,
        ge=0,
        le=1,
        strict=True,
        allow_inf_nan=False,
        description="share of the meshes that use it; 0: none, it only scores in the shadow; absent or null: 0.1",
    )


class PromotionDocument(Document):
    """Which meshes change to a model."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}, {"mesh": "shop"}]})

    mesh: MeshOfModel | None = Field(None, description="the only mesh; absent or null: all")


class RollbackDocument(Document):
    """Which meshes go back to the previous model."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}, {"mesh": "shop", "reason": "too many alerts"}]})

    mesh: MeshOfModel | None = Field(None, description="a mesh with a model of its own, which it gives up; absent: all")
    reason: Text = Field("", max_length=MAX_REASON, description="for people; the history has it")


class BlockDocument(KeptDocument):
    """Sums over one mesh's consecutive snapshots that both models in a trial scored, and the number of others that only
    one of them scored."""

    since: Instant = Field(description="when the trial got its share")
    share: float = Field(ge=0, le=1, description="of the meshes that used the candidate")
    began: Instant = Field(description="time of the first snapshot")
    snapshots: int = 0
    seconds: float = Field(0.0, description="time that they cover")
    same_status: int = Field(0, description="snapshots in which both models, or neither, raised an alert")
    both_alert: int = Field(0, description="snapshots in which both did")
    same_culprit: int = Field(0, description="snapshots in which both did, with the same first suspect")
    candidate_alerts: int = Field(0, description="alerts that began")
    baseline_alerts: int = 0
    score_difference: float = Field(0.0, description="sum of the candidate's mesh scores less the baseline's")
    candidate_failed: int = Field(0, description="further snapshots, which the candidate could not score in full")
    baseline_failed: int = Field(0, description="further snapshots, which the baseline could not score in full")


class MeshTrialDocument(KeptDocument):
    """A trial in one mesh: sums over its snapshots."""

    mesh: str
    services: int = Field(ge=0, description="in the newest snapshot")
    candidate: ModelVersion
    baseline: ModelVersion
    newest: Instant | None = Field(None, description="time of the newest snapshot")
    blocks: list[BlockDocument] = Field(default_factory=list, description="oldest first")


class IntervalDocument(Document):
    """A figure with its 95% interval; null: unknown."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


class ComparisonOfModels(Document):
    """How a candidate differs from its baseline, with 95% intervals."""

    candidate: ModelVersion
    baseline: ModelVersion
    meshes: int = Field(ge=0, description="number of meshes")
    snapshots: int = Field(ge=0, description="that both models scored")
    attempts: int = Field(0, ge=0, description="snapshots that both models, or one of them, scored")
    days: float = Field(ge=0, description="of all meshes together")
    candidate_alerts_per_day: IntervalDocument = Field(description="of one mesh, on average")
    baseline_alerts_per_day: IntervalDocument = Field(description="of one mesh, on average")
    budget_per_day: float | None = Field(description="alert budget of one mesh, on average; null: unknown")
    same_status: IntervalDocument = Field(description="share of the snapshots in which both models, or neither, alert")
    same_culprit: IntervalDocument = Field(
        description="share of the snapshots in which both alert with the same suspect"
    )
    score_difference: IntervalDocument = Field(description="mean of the candidate's mesh scores less the baseline's")
    candidate_failed: IntervalDocument = Field(
        IntervalDocument(), description="share of the attempts that the candidate could not score in full"
    )
    baseline_failed: IntervalDocument = Field(
        IntervalDocument(), description="share of the attempts that the baseline could not score in full"
    )
