"""The demo as a frozen state, and the loop that sends a snapshot, reads a key and yields the next state."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from model.snapshot import MeshSnapshot
from serve_app.api.client import Client
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.demo.keys import Controls, Option, menu, press
from serve_app.demo.story import (
    FIRST_SUSPECTS,
    PAUSE,
    Chapter,
    Deed,
    FaultFinding,
    Judgement,
    ShownIncident,
    about,
    begins,
    chapters,
    deed_text,
    found,
    judge,
    paged,
    spent,
)
from serve_app.simulator.events.faults import Fault
from serve_app.simulator.simulator import Simulator

MESH = "demo"
WARM_UP = 70  # quiet snapshots before anything is done
KEPT = 400  # scenes and events
TICK_SECONDS = 0.1  # at most between two looks at the keys and at the size of the terminal

ReadKey = Callable[[float], str]  # seconds to wait -> a key, or nothing


@dataclass(frozen=True, slots=True)
class JudgedSnapshot:
    """One snapshot, scored: its index, the verdict on it, and milliseconds from POST to verdict."""

    index: int
    verdict: VerdictDocument
    milliseconds: float


@dataclass(frozen=True, slots=True)
class ShowEvent:
    """Something done to the mesh, or said of it.

    Attributes:
        scene: of its snapshot.
        mark: key of what was done; empty where the chart needs none.
        text: for people.
        style: of the text, in rich's words.
        secret: tells what is wrong in truth.
    """

    scene: JudgedSnapshot
    mark: str
    text: str
    style: str = ""
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Show:
    """All that can be seen of the demo.

    Attributes:
        title: of the mesh.
        interval_seconds: between snapshots.
        menu: what may be done to the mesh.
        keys: whether somebody can press them.
        controls: what keys have set.
        chapter: of the story that is being told; None while there is none.
        scenes, events: the newest last.
        deeds: all that was or will be done to the mesh, in the order of asking.
        pages: all incidents so far.
        findings: what became of each fault that has begun.
        judgement: on the last chapter that came to its end.
        notice: an answer to the last key.
        page: its address in a browser, if there is one.
    """

    title: str
    interval_seconds: float
    menu: tuple[Option, ...]
    keys: bool = False
    controls: Controls = field(default_factory=Controls)
    chapter: Chapter | None = None
    scenes: tuple[JudgedSnapshot, ...] = ()
    events: tuple[ShowEvent, ...] = ()
    deeds: tuple[Deed, ...] = ()
    pages: tuple[ShownIncident, ...] = ()
    findings: tuple[FaultFinding, ...] = ()
    judgement: Judgement | None = None
    notice: str = ""
    page: str = ""

    @property
    def next_index(self) -> int:
        """Of the snapshot that comes next."""
        return self.scenes[-1].index + 1 if self.scenes else 0

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All faults so far."""
        return tuple(deed for deed in self.deeds if isinstance(deed, Fault))

    @property
    def spent(self) -> frozenset[str]:
        """Services with which nothing more can be done."""
        return spent(self.deeds)

    @property
    def taken(self) -> frozenset[str]:
        """Services at which something is going on."""
        return frozenset(deed.service for deed in self.deeds if self.is_under_way(deed))

    def is_under_way(self, deed: Deed) -> bool:
        """Whether a deed may show in the newest snapshot or the next one; a change does for as long as most faults."""
        end = deed.end if isinstance(deed, Fault) else deed.at + FADING
        return begins(deed) <= self.next_index <= end

    def is_paged(self, fault: Fault) -> bool:
        """Whether a page is about a fault."""
        return any(about(page, self.faults, self.interval_seconds) == fault for page in self.pages)

    def mark(self, deed: Deed) -> str:
        """The key of a deed's kind."""
        return next((option.key for option in self.menu if option.kind == deed.kind), "")


FADING = 20  # snapshots in which a change is still called under way


def opening(simulator: Simulator, seed: int, controls: Controls, keys: bool = False) -> Show:
    """The show before its first snapshot."""
    spec = simulator.spec
    namespaces = len({name.split("/")[0] for name in simulator.node_ids})
    calls = int((~simulator.mesh.topology.latent_calls).sum())
    title = (
        f"{spec.services:,} services in {namespaces} namespaces, {calls:,} calls, "
        f"a snapshot every {spec.interval_seconds:.0f} s; seed {seed}"
    )
    return Show(title, spec.interval_seconds, menu(simulator.mesh, seed), keys, controls)


def play(client: Client, simulator: Simulator, show: Show, seed: int, read: ReadKey) -> Iterator[Show]:
    """The show after each key and each snapshot, scored by the service, until a key ends it.

    ``read`` waits; it is called between any two snapshots, and at least once in ``TICK_SECONDS``.
    """
    snapshots, plan = simulator.snapshots(), chapters(simulator.mesh, seed)
    sent = -float("inf")
    while not show.controls.quit:
        before = show.deeds
        show = told(show, plan)
        left = sent + _pause(show) - time.perf_counter()
        if key := read(max(0.0, min(left, TICK_SECONDS))):
            show = pressed(show, key)
        simulator.schedule(*show.deeds[len(before) :])
        if not key and time.perf_counter() >= sent + _pause(show):
            sent = time.perf_counter()
            show = _posted(client, show, next(snapshots))
        yield show


def told(show: Show, plan: Iterator[Chapter]) -> Show:
    """The show with what the story does next."""
    if not show.controls.story:
        return replace(show, chapter=None)
    chapter = show.chapter
    if chapter is None or show.next_index == chapter.end:
        start = chapter.end + PAUSE if chapter else max(WARM_UP, show.next_index)
        possible = (new for new in plan if show.spent.isdisjoint(deed.service for deed in new.deeds))
        chapter = next(possible).moved(start, since=show.next_index)
    due = (deed for deed in chapter.deeds if begins(deed) == show.next_index and deed not in show.deeds)
    return replace(show, chapter=chapter, deeds=(*show.deeds, *due))


def pressed(show: Show, key: str) -> Show:
    """The show after a key."""
    controls, option = press(show.controls, key, show.menu)
    if option is None:
        return replace(show, controls=controls, notice="")
    if show.next_index < WARM_UP:
        return replace(show, notice=f"not yet: the first {WARM_UP} snapshots teach the detector this mesh")
    service = option.service(show.controls.turn, show.taken, show.spent)
    if service is None:
        return replace(show, notice=f"no service is left for another {option.words}")
    deed = option.deed(service, show.next_index)
    if controls.hidden and option.is_fault:
        notice = "a fault begins; you are not told which"
    else:
        notice = f"{deed_text(deed)} begins: {option.meaning}"
    return replace(show, controls=controls, chapter=None, deeds=(*show.deeds, deed), notice=notice)


def scored(show: Show, scene: JudgedSnapshot) -> Show:
    """The show after one more verdict."""
    pages = paged(show.pages, scene.index, scene.verdict)
    events = [*_done(show, scene), *_said(show.pages, pages, scene)]
    before = {finding.fault: finding for finding in show.findings}
    begun = [before.get(fault, FaultFinding(fault)) for fault in show.faults if fault.start <= scene.index]
    chapter, judgement = show.chapter, show.judgement
    if chapter and scene.index == chapter.end - 1:
        judgement = judge(chapter, pages, show.interval_seconds)
        text = f"{'as it should' if judgement.passed else 'WRONG'}: {judgement.reason}"
        events.append(ShowEvent(scene, "", text, "bold green" if judgement.passed else "bold red", secret=True))
    return replace(
        show,
        controls=replace(show.controls, step=False),
        scenes=(*show.scenes, scene)[-KEPT:],
        events=(*show.events, *events)[-KEPT:],
        pages=pages,
        findings=tuple(found(finding, scene.index, scene.verdict, show.interval_seconds) for finding in begun),
        judgement=judgement,
    )


def _pause(show: Show) -> float:
    """Seconds from one snapshot to the next."""
    controls = show.controls
    if controls.paused and not controls.step:
        return float("inf")
    quick = controls.step or not controls.speed or show.next_index <= WARM_UP
    return 0.0 if quick else show.interval_seconds / controls.speed


def _posted(client: Client, show: Show, snapshot: MeshSnapshot) -> Show:
    began = time.perf_counter()
    verdict = client.push(MESH, snapshot)
    return scored(show, JudgedSnapshot(show.next_index, verdict, 1000.0 * (time.perf_counter() - began)))


def _done(show: Show, scene: JudgedSnapshot) -> Iterator[ShowEvent]:
    """What is done to the mesh in this snapshot."""
    if scene.index == 0:
        yield ShowEvent(scene, "", f"{WARM_UP} quiet snapshots teach the detector this mesh", "cyan")
    for deed in show.deeds:
        is_fault = isinstance(deed, Fault)
        if begins(deed) == scene.index:
            wanted, style = ("somebody", "bold yellow") if is_fault else ("nobody", "cyan")
            yield ShowEvent(
                scene, show.mark(deed), f"{deed_text(deed)}: {wanted} should be paged", style, secret=is_fault
            )
        if isinstance(deed, Fault) and deed.end == scene.index:
            yield ShowEvent(scene, "", f"{deed_text(deed)} ends", "yellow", secret=True)


def _said(
    before: tuple[ShownIncident, ...], pages: tuple[ShownIncident, ...], scene: JudgedSnapshot
) -> Iterator[ShowEvent]:
    """What the detector says for the first time."""
    for page in pages[len(before) :]:
        yield ShowEvent(
            scene,
            "",
            f"PAGE: suspects {', '.join(page.suspects[:FIRST_SUSPECTS])}; incident {page.incident}",
            "bold red",
        )
