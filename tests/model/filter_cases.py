"""Series of one channel, with values made by hand."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from model.features import MANY, Channel
from model.state.filters import SLOTS, Deviation, new_filters, update_filters

CHANNEL = Channel("x", "1", "log", 1.0, floor=0.02, prior=0.2)
SIGMA = 0.1
Floats = NDArray[np.float32]


class Series:
    """Several series of one channel, each with its own filter."""

    def __init__(self, count: int = 1, channel: Channel = CHANNEL) -> None:
        self.channels = (channel,)
        self.filters = new_filters(count, np.zeros((SLOTS, 0, 1), np.float32), self.channels)

    def see(
        self,
        *values: float,
        noise: float = 0.0,
        muted: bool = False,
        paused: bool = False,
        measured: bool = True,
        requests: float = MANY,
    ) -> Deviation:
        """Update the filters with one value for each series."""
        count = self.filters.shape[1]
        column = np.broadcast_to(np.array(values, np.float32), count)[:, None].copy()
        deviation, self.filters = update_filters(
            self.filters,
            column,
            np.full((count, 1), measured),
            np.full((count, 1), noise, np.float32),
            np.full(count, muted),
            np.full(count, paused),
            self.channels,
            np.full(count, requests, np.float32),
        )
        return deviation

    def settle(self, snapshots: int = 600, requests: float = MANY) -> Self:
        rng = np.random.default_rng(0)
        for _ in range(snapshots):
            values = SIGMA * rng.standard_normal((self.filters.shape[1],))
            self.see(*values.tolist(), requests=requests)
        return self

    def slot(self, slot: int | slice) -> Floats:
        """Return a slot of all filters, ``[N]``; slots of the tail are ``[SCALES, N]``."""
        return self.filters[slot, ..., 0]
