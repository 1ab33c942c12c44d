"""MetaModel: combines the evidence from all parts of a snapshot into one verdict. It is light and runs on a CPU."""

import asyncio

import torch

from model.incidents.memory import IncidentMemory
from model.incidents.policy import AlertPolicy
from model.mesh_weights import load_weights
from model.verdict import Verdict
from serve_app.api.schemas.models import ModelPin
from serve_app.deployments.scoring.passes import warm_up
from serve_app.models.loader import open_loader
from serve_app.observability.spans import span
from serve_app.pipeline import MetaInput, decide
from serve_app.runtime.replica import open_instruments
from serve_app.runtime.reporting import start_reporting
from serve_app.settings import Settings


class MetaModel:
    """Makes verdicts for meshes with several parts.

    Raises:
        IncompatibleWeights: not even the shipped weights can be read.
    """

    def __init__(self, settings: Settings) -> None:
        start_reporting(settings, "meta-model")
        torch.set_num_threads(settings.model.threads)
        self._weights = load_weights(settings.model.weights, settings.weights_by_mesh, network=settings.model.network)
        self._loader = open_loader(settings, torch.device("cpu"), open_instruments())
        warm_up(self._weights.default)

    async def check_health(self) -> None:
        """Serve calls this every second."""
        self._loader.measure()

    async def digest(self) -> str:
        return self._weights.default.digest

    async def decide(
        self, meta_input: MetaInput, policy: AlertPolicy, mesh: str, trace: str = "", pin: ModelPin | None = None
    ) -> tuple[Verdict, IncidentMemory]:
        """Return a snapshot's verdict, and the memory for the next snapshot. ``policy`` is the policy with which the
        session gathered the evidence.

        Args:
            trace: the caller's ``traceparent``.
            pin: the mesh's model; None: the configured weights.

        Raises:
            UnknownModel, RegistryGone, IncompatibleWeights: the model cannot be loaded soon.
        """
        checkpoint = self._weights.of(mesh) if pin is None else await self._loader.load(pin)
        with span("meta-model.decide", trace):
            return await asyncio.to_thread(decide, checkpoint, meta_input, policy)
