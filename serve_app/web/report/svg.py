"""SVG elements and axes as text. Colours are CSS classes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape

import numpy as np
from numpy.typing import NDArray

from model.names import readable

Floats = NDArray[np.float64]
NICE = [timedelta(minutes=m) for m in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)] + [
    timedelta(days=d) for d in (1, 2, 7, 14, 28)
]
LABEL_WIDTH = 52.0  # pixels of a time's label, with its margin
DWARFED = 30.0  # times the median score, above which the axis is logarithmic
_START = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to pixels: ``low`` to ``start``, ``high`` to ``end``; ``log``: on a logarithmic scale."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, values: Floats) -> Floats:
        """Return the pixels of values ``[T]``; values outside are mapped to the edge."""
        inside = np.clip(np.nan_to_num(values, nan=self.low), self.low, self.high)
        low, high = self.low, self.high
        if self.log:
            inside, low, high = np.log10(inside), math.log10(low), math.log10(high)
        pixels: Floats = self.start + (inside - low) / max(high - low, 1e-12) * (self.end - self.start)
        return pixels

    def pixel(self, value: float) -> float:
        return float(self.at(np.array([value]))[0])

    def ticks(self, max_ticks: int = 5) -> list[float]:
        """Return at most ``max_ticks`` round values inside the scale."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            stride = max(1, math.ceil((last - first + 1) / max_ticks))
            return [10.0**power for power in range(first, last + 1, stride)]
        rough = (self.high - self.low) / max(max_ticks - 1, 1)
        unit = 10 ** math.floor(math.log10(max(rough, 1e-12)))
        step = next(k * unit for k in (1, 2, 5, 10) if k * unit >= rough)
        return [i * step for i in range(math.ceil(self.low / step), math.floor(self.high / step + 1e-9) + 1)]


def readable_html(text: str) -> str:
    """Return a text for SVG and HTML, with original names instead of ids."""
    return escape(readable(text))


def tag(name: str, *content: str, **attributes: object) -> str:
    """Return an element; ``class_`` becomes class, underscores become hyphens, numbers have one decimal."""
    attributes_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_plain(value)}"' for key, value in attributes.items()
    )
    return f"<{name}{attributes_text}>{''.join(content)}</{name}>" if content else f"<{name}{attributes_text}/>"


def words(text: str, x: float, y: float, class_: str = "", anchor: str = "start") -> str:
    return tag("text", readable_html(text), x=x, y=y, class_=class_ or "label", text_anchor=anchor)


def hint(text: str) -> str:
    """Return the tooltip of the enclosing element, which screen readers read."""
    return tag("title", readable_html(text))


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    return tag("path", d=f"M{_plain(x1)} {_plain(y1)}L{_plain(x2)} {_plain(y2)}", class_=class_)


def rectangle(x: float, y: float, width: float, height: float, class_: str, title: str = "") -> str:
    """Return a filled rectangle; ``title`` is its :func:`hint`."""
    hints = [hint(title)] if title else []
    return tag("rect", *hints, x=x, y=y, width=max(width, 0), height=max(height, 0), class_=class_)


def curve(x: Floats, y: Floats, breaks: Iterable[int], class_: str, *, steps: bool = False) -> str:
    """Return a line through points ``[T]`` with gaps before ``breaks``; ``steps``: horizontal, then vertical."""
    cuts, commands = set(breaks), []
    for i, (px, py) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        if i == 0 or i in cuts:
            commands.append(f"M{_plain(px)} {_plain(py)}")
        else:
            commands.append(f"H{_plain(px)}V{_plain(py)}" if steps else f"L{_plain(px)} {_plain(py)}")
    return tag("path", d="".join(commands), class_=class_)


def picture(width: float, height: float, title: str, about: str, name: str, *content: str) -> str:
    """Return the whole picture with a text for screen readers; ``name`` is unique on the page."""
    return tag(
        "svg",
        tag("title", readable_html(title), id=f"{name}-t"),
        tag("desc", readable_html(about), id=f"{name}-d"),
        *content,
        viewBox=f"0 0 {_plain(width)} {_plain(height)}",
        role="img",
        aria_labelledby=f"{name}-t {name}-d",
    )


def score_scale(score: Floats, threshold: Floats, bottom: float, top: float) -> Scale:
    """Return a scale from zero for scores and thresholds ``[T]`` (NaN: none), or a logarithmic one if a few scores
    dwarf all others."""
    values = np.concatenate([score, threshold[np.isfinite(threshold)]])
    high, usual = float(values.max()), float(np.median(values[values > 0])) if (values > 0).any() else 0.0
    if usual and high > DWARFED * usual:
        lowest = float(values[values > 0].min())
        return Scale(max(lowest, usual / 100), high * 1.1, bottom, top, log=True)
    low = min(0.0, float(values.min()))
    return Scale(low, max(high * 1.05, low + 1e-9), bottom, top)


def instants(begin: datetime, end: datetime, scale: Scale) -> list[tuple[float, str]]:
    """Return the labels of a time axis with their pixels: as many round times as it has room for; midnight is a date.
    The scale is of seconds after ``begin``, in whose zone the times are round."""
    start, stop = begin.replace(tzinfo=UTC), begin.replace(tzinfo=UTC) + (end - begin)
    room = LABEL_WIDTH * (scale.high - scale.low) / (scale.end - scale.start)
    every = next((interval for interval in NICE if interval.total_seconds() >= room), NICE[-1])
    labels = []
    time = _START + ((start - _START) // every + 1) * every
    while time <= stop:
        text = f"{time:%d %b}" if time.hour == time.minute == 0 else f"{time:%H:%M}"
        labels.append((scale.pixel((time - start).total_seconds()), text))
        time += every
    return labels


def _plain(value: object) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.1f}".removesuffix(".0")
    return escape(str(value))
