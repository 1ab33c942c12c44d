"""The cases of each group: a simulated mesh, its events, and its expected verdicts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import product

import numpy as np

from lab.simulator.events.churn import FACTORS, plan_churn
from lab.simulator.events.faults import Fault, FaultKind, candidates
from lab.simulator.events.operations import BATCHES, RESTART_SECONDS, STAGES, BenignChange
from lab.simulator.events.traffic import EVERYWHERE, TrafficShift
from lab.simulator.events.wiring import RETURN_TICKS, STAGE_TICKS
from lab.simulator.events.work import Work
from lab.simulator.mesh.parameters import build_mesh, usual_conditions
from lab.simulator.mesh.topology import Ints, MeshSpec
from lab.simulator.physics.load import HIGHEST, day_amplitude
from lab.simulator.physics.propagation import EXPONENTIAL, MeshPhysics, respond
from model.verdict import IncidentKind

Event = Fault | BenignChange | TrafficShift | Work
BEGINS = 170  # snapshot of most cases' first event, after a calm time
EARLY = 10  # snapshots before BEGINS in which a deploy may precede a fault
WITHIN = 12  # snapshots of 15 s until an alert, three minutes
LASTS = 60  # snapshots of an incident that does not end
DAY_TICKS = 5760  # snapshots of 15 s
TRAFFIC_KINDS = frozenset({IncidentKind.TRAFFIC_LOST, IncidentKind.TRAFFIC_SURGE})

FALLS, SURGES, RISES = (0.5, 0.2, 0.02, 0.0), (3.0, 6.0), (1, 4)  # factors on the traffic, snapshots of the change
NAMESPACES = 4  # so that several have entry points
PARTIAL_FALL = 0.5  # at a namespace or an entry point: a notice is enough
ROOMY = "a mesh with room"  # without harm: a notice is enough for a moderate surge
DEPLOYS = 40
SECOND = 8  # snapshots from the fault to a deploy that does not help
SLOWER, FAILING = (2.5, 4.0), (0.2, 0.6)  # factor on the latency, share of requests
OWN_SHARE = 0.5  # share of own time in the latency above which it shows
MIN_RATE = 5.0  # 1/s
MIN_DELAY = 0.06  # s that a slow service adds to a request: users notice no less, so less is no harm
HARMLESS, HARMLESS_PER_MESH, SPACING = 200, 50, 24  # changes, changes per mesh, snapshots between two changes
GAPS, BEFORE_GAP, AFTER_GAP = range(1, 21), 20, 40  # missing snapshots, snapshots of the incident before and after
LONG_GAP = 160  # snapshots, 40 minutes
GAP_SLOWER = 3.0  # multiple of its latency that the incident's service adds
GAPS_WITH_END, GAPS_WITH_START = (1, 3, 5, 20, LONG_GAP), (24, 40, LONG_GAP)
DAY_RATIOS, WEEKENDS = (3.0, 5.0, 8.0), (0.4, 0.5, 0.6)  # busiest over quietest hour, weekend over working day
DAY_SERVICES, PEAKS_PER_DAY, PEAK = 40, 0.5, (2.0, 3.0)
PEAK_MINUTES, RISE_MINUTES, FALL_MINUTES = (20, 90), (2, 10), (2, 30)
JOB_MINUTES, JOB_EVERY, JOB_CALLS, JOB_CPU = (1, 4), (30, 60), (5.0, 10.0), (0.6, 0.95)
JOBS, JOB_RATE, FULL = 4, 0.5, 0.7  # jobs, minimum rate of a job's call in 1/s, maximum utilisation
CANARIES, CANARY_LATENT = 40, 0.3
SATURATIONS, SATURATED_TICKS, NOTICED_WITHIN = 10, 10, 4  # cases, snapshots of a minute
SATURATED_SERVICES, SATURATED_RATE = 12, 0.1  # services, mean requests/s
TAIL = (5.0, 20.0)  # factor on the 99th percentile
QUIET_SERVICES, QUIET_TICKS = (60, 200), DAY_TICKS // 2


@dataclass(frozen=True, slots=True)
class Way:
    """The relation of a deploy and a fault.

    Attributes:
        seconds: from the deploy to the fault.
        is_cause: whether the new version is the fault.
        is_again: whether a second deploy follows, which does not help.
    """

    words: str
    seconds: float = 0.0
    is_cause: bool = False
    is_again: bool = False


WAYS = (
    Way("at its deploy"),
    Way("15 s after its deploy", 15.0),
    Way("60 s after its deploy", 60.0),
    Way("120 s after its deploy", 120.0),
    Way("because of its deploy", is_cause=True),
    Way("15 s after its deploy, and deployed again", 15.0, is_again=True),
)


class Form(StrEnum):
    """The form of an expectation."""

    ALERT = "alert"  # an alert in time, which then stays unless ``stays`` is False
    FOUND = "found"  # an alert or a notice in time
    NOTICE = "notice"  # a notice in time, and no alert before it
    SAME = "same"  # after a gap, at once the incident from before it, and no other
    ENDED = "ended"  # at the end of the case, no alert is open
    COUNT = "count"  # at most ``max_incidents`` incidents
    FREE = "free"  # anything; only the sum over the group is bounded


@dataclass(frozen=True, slots=True)
class Expectation:
    """The result that a case's verdicts must show.

    Attributes:
        since: the case's snapshot from which the time counts.
        within: snapshots in which it must be shown.
        stays: whether an alert must stay to the end.
        services: only incidents at one of these count; empty: all.
        kinds: only incidents of these kinds count; empty: all.
        alerts_only: whether notices do not count.
    """

    form: Form
    since: int = 0
    within: int = WITHIN
    stays: bool = True
    max_incidents: int = 0
    services: frozenset[str] = frozenset()
    kinds: frozenset[IncidentKind] = frozenset()
    alerts_only: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """A simulated mesh with events.

    Attributes:
        name: description for people.
        begins: first snapshot that is shown and judged.
        length: snapshots from there.
        gap: first missing snapshot, and the number of missing ones.
    """

    group: str
    name: str
    spec: MeshSpec
    expectation: Expectation
    events: tuple[Event, ...] = ()
    begins: int = BEGINS
    length: int = 40
    gap: tuple[int, int] = (0, 0)

    @property
    def prelude(self) -> int:
        """Number of first snapshots without events; a mesh's cases share the state after them."""
        return max(0, self.begins - EARLY)

    @property
    def snapshots(self) -> int:
        """Number of snapshots to score after that state."""
        return self.begins + self.length - self.prelude - self.gap[1]


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of measurement: the meshes' seeds, services unless the group sets them, and the length of the group
    ``days``."""

    seeds: tuple[int, ...] = (31, 32)
    services: int = 60
    days: float = 14.0

    def seed(self, number: int) -> int:
        """Return the seed for the mesh with this number, also beyond the number of seeds."""
        return self.seeds[number % len(self.seeds)] + 100 * (number // len(self.seeds))


@dataclass(frozen=True, slots=True)
class Group:
    """A group of cases.

    Attributes:
        failures: share of cases that may fail.
        alerts: maximum number of alerts over all cases; None: not bounded.
        is_promise: whether the shipped settings' budget bounds alerts and notices.
    """

    make: Callable[[Size], list[Case]]
    failures: float = 0.0
    alerts: int | None = None
    is_promise: bool = False


@cache
def mesh_of(spec: MeshSpec) -> MeshPhysics:
    return build_mesh(spec)


def traffic(size: Size) -> list[Case]:
    """Return cases in which requests from outside fall or rise: in the mesh, in a namespace, at an entry point."""
    group = []
    for seed in size.seeds:
        spec = MeshSpec(services=size.services, seed=seed, namespaces=max(1, min(NAMESPACES, size.services // 4)))
        for label, scope in scopes(mesh_of(spec)).items():
            for factor, rise in product((*FALLS, *SURGES), RISES):
                group.append(_shifted(spec, label, scope, factor, rise))
        roomy = replace(spec, sized_for=spec.sized_for * max(SURGES))
        group += [_shifted(roomy, ROOMY, EVERYWHERE, *shift) for shift in product(SURGES, RISES)]
    return group


def _shifted(spec: MeshSpec, label: str, scope: str, factor: float, rise: int) -> Case:
    is_part, is_surge = scope != EVERYWHERE, factor > 1
    is_moderate = factor in (PARTIAL_FALL, min(SURGES)) if is_part else label == ROOMY and factor == min(SURGES)
    form = Form.FOUND if is_moderate or (is_surge and not scope.endswith("*")) else Form.ALERT
    shift = TrafficShift(factor, BEGINS, BEGINS + LASTS + 1, rise, scope=scope)
    speed = "at once" if rise == 1 else f"over {rise} snapshots"
    name = f"seed {spec.seed}: traffic of {label} goes to {factor:.0%} {speed}"
    return Case("traffic", name, spec, Expectation(form, since=rise - 1), (shift,), length=40)


def scopes(mesh: MeshPhysics) -> dict[str, str]:
    """Return a mesh's scopes by label: all, the busiest namespace, the busiest entry point, if they differ."""
    names, entry = mesh.topology.node_ids, mesh.services.entry * ~mesh.topology.latent
    gateways = np.flatnonzero(entry)
    busiest = names[int(np.argmax(entry))]
    space = busiest.split("/")[0]
    within = [i for i in gateways if names[i].startswith(f"{space}/")]
    labels = {"the mesh": EVERYWHERE}
    if len(within) < len(gateways):
        labels["a namespace"] = f"{space}/*"
    if len(gateways) > 1:
        labels["an entry point"] = busiest
    return labels


def deploys(size: Size) -> list[Case]:
    """Return cases in which a service turns slow or fails after its own deploy, or because of it."""
    return [_bad_deploy(size, number) for number in range(DEPLOYS)]


def _bad_deploy(size: Size, number: int) -> Case:
    rng = np.random.default_rng([number, *size.seeds])
    spec = MeshSpec(services=size.services, seed=size.seed(number // (2 * len(WAYS)) % len(size.seeds)))
    mesh, way = mesh_of(spec), WAYS[number % len(WAYS)]
    is_slow = number % 4 < 2
    harm = float(rng.uniform(*(SLOWER if is_slow else FAILING)))
    services = services_with_own_time(mesh)
    if is_slow:
        services, slower = harmful_services(mesh, harm - 1.0, of_own_time=way.is_cause)
        harm = 1.0 + slower
    name = mesh.topology.node_ids[int(rng.choice(services))]
    words = f"{harm:.1f} times as slow" if is_slow else f"{harm:.0%} fail"
    rollout = BATCHES * max(1, round(RESTART_SECONDS / spec.interval_seconds)) if way.is_cause else 0
    affected = frozenset({name, *callers(mesh, name)})
    expectation = Expectation(Form.ALERT, since=rollout, services=affected)
    events = _deploy_events(way, name, harm, spec.interval_seconds, is_slow=is_slow)
    title = f"seed {spec.seed}: {name} {words} {way.words}"
    return Case("deploys", title, spec, expectation, events, length=LASTS)


def _deploy_events(way: Way, name: str, harm: float, interval: float, *, is_slow: bool) -> tuple[Event, ...]:
    """Return a deploy, and the fault unless the deploy is its cause. Injected time is added to the usual."""
    if way.is_cause:
        return (BenignChange("deploy", name, BEGINS, harm if is_slow else 1.0, errors=0.0 if is_slow else harm),)
    end = BEGINS + LASTS + 1
    kind: FaultKind = "latency_injection" if is_slow else "error_burst"
    fault = Fault(kind, name, BEGINS, end, harm - 1.0 if is_slow else harm)
    first = BenignChange("deploy", name, BEGINS - round(way.seconds / interval), 1.0)
    return (first, fault, BenignChange("deploy", name, BEGINS + SECOND, 1.0)) if way.is_again else (first, fault)


def services_with_own_time(mesh: MeshPhysics) -> Ints:
    """Return the positions of busy services whose latency is mostly own time, so that slower code shows in it."""
    busy = candidates(mesh, "latency_injection", MIN_RATE)
    own_share = (mesh.services.cpu_time + mesh.services.delay)[busy] / np.maximum(mesh.usual_p50[busy], 1e-9)
    return busy[own_share >= OWN_SHARE] if (own_share >= OWN_SHARE).any() else busy


def harmful_services(mesh: MeshPhysics, slower: float, *, of_own_time: bool) -> tuple[Ints, float]:
    """Return the services with own time that delay a request by ``MIN_DELAY`` if they get slower, and the multiple of
    the latency that they add, which is larger than ``slower`` if otherwise none did.

    Args:
        of_own_time: whether they add a multiple of their own time, like a slower version, or of their median.
    """
    services = services_with_own_time(mesh)
    latency = (mesh.services.cpu_time + mesh.services.delay if of_own_time else mesh.usual_p50)[services]
    slower = max(slower, 1.001 * MIN_DELAY / float(latency.max()))
    return services[slower * latency >= MIN_DELAY], slower


def callers(mesh: MeshPhysics, name: str) -> frozenset[str]:
    topology = mesh.topology
    rows = (topology.destination == topology.node_ids.index(name)) & ~topology.latent_calls
    return frozenset(topology.node_ids[i] for i in topology.source[rows])


def harmless(size: Size) -> list[Case]:
    """Return cases with harmless changes, in the simulator's mix."""
    group = []
    length = HARMLESS_PER_MESH * SPACING
    for number in range(HARMLESS // HARMLESS_PER_MESH):
        spec = MeshSpec(services=size.services, seed=size.seed(number))
        rng = np.random.default_rng([5, spec.seed])
        churn = plan_churn(mesh_of(spec), rng, length, HARMLESS_PER_MESH)
        changes = tuple(replace(change, at=change.at + BEGINS) for change in churn)
        name = f"seed {spec.seed}: {len(changes)} harmless changes"
        group.append(Case("harmless", name, spec, Expectation(Form.FREE), changes, length=length + SPACING))
    return group


def gaps(size: Size) -> list[Case]:
    """Return cases with missing snapshots in an incident."""
    return [case for seed in size.seeds for case in _gaps(MeshSpec(services=size.services, seed=seed))]


def _gaps(spec: MeshSpec) -> list[Case]:
    mesh = mesh_of(spec)
    services, slower = harmful_services(mesh, GAP_SLOWER, of_own_time=False)
    name = mesh.topology.node_ids[services[len(services) // 2]]
    first, group = BEGINS + BEFORE_GAP, []
    affected = frozenset({name, *callers(mesh, name)})
    for missing in (*GAPS, LONG_GAP):
        length = BEFORE_GAP + missing + AFTER_GAP
        fault = Fault("latency_injection", name, BEGINS, BEGINS + length + 1, slower)
        title = f"seed {spec.seed}: {missing} snapshots missing in an incident"
        expectation = Expectation(Form.SAME, services=affected)
        group.append(Case("gaps", title, spec, expectation, (fault,), length=length, gap=(first, missing)))
    for missing in GAPS_WITH_START:
        fault = Fault("latency_injection", name, first + missing // 2, first + missing + AFTER_GAP + 1, slower)
        title = f"seed {spec.seed}: a fault begins while {missing} snapshots are missing"
        expectation = Expectation(Form.ALERT, since=missing, services=affected)
        length = missing + AFTER_GAP
        gap = first, missing
        group.append(Case("gaps", title, spec, expectation, (fault,), begins=first, length=length, gap=gap))
    for missing in GAPS_WITH_END:
        fault = Fault("latency_injection", name, BEGINS, first + 2, slower)
        title = f"seed {spec.seed}: an incident ends while {missing} snapshots are missing"
        length = BEFORE_GAP + missing + AFTER_GAP
        expectation = Expectation(Form.ENDED, services=affected)
        group.append(Case("gaps", title, spec, expectation, (fault,), length=length, gap=(first, missing)))
    return group


def days(size: Size) -> list[Case]:
    """Return cases with nights, weekends and marketing peaks, in snapshots of a minute."""
    group = []
    length = round(size.days * 1440)
    for number, (ratio, weekend) in enumerate(zip(DAY_RATIOS, WEEKENDS, strict=True)):
        amplitude = day_amplitude(ratio)
        spec = MeshSpec(
            services=DAY_SERVICES,
            seed=size.seed(number),
            interval_seconds=60.0,
            day_amplitude=amplitude,
            weekend=weekend,
            sized_for=1.1 * PEAK[1] * (1.0 + HIGHEST * amplitude),
        )
        peaks = draw_peaks(mesh_of(spec), np.random.default_rng([6, spec.seed]), size.days)
        name = f"seed {spec.seed}: {size.days:g} days, {ratio:g}:1, weekends {weekend:.0%}, {len(peaks)} peaks"
        expectation = Expectation(Form.COUNT, max_incidents=1, kinds=TRAFFIC_KINDS, alerts_only=True)
        group.append(Case("days", name, spec, expectation, peaks, begins=0, length=length))
    return group


def draw_peaks(mesh: MeshPhysics, rng: np.random.Generator, number_of_days: float) -> tuple[TrafficShift, ...]:
    """Draw marketing peaks, at most one a day, in the mesh or a namespace, in snapshots of a minute."""
    mesh_scopes = list(scopes(mesh).values())
    peaks = []
    for day in range(int(number_of_days)):
        draw, factor, at = rng.random(), float(rng.uniform(*PEAK)), int(rng.integers(0, 1440 - 2 * PEAK_MINUTES[1]))
        minutes, rise, fall = (int(rng.integers(a, b + 1)) for a, b in (PEAK_MINUTES, RISE_MINUTES, FALL_MINUTES))
        scope = mesh_scopes[int(rng.integers(len(mesh_scopes)))]
        if draw < PEAKS_PER_DAY:
            start = day * 1440 + at
            peaks.append(TrafficShift(factor, start, start + rise + minutes + fall, rise, fall, scope))
    return tuple(peaks)


def jobs(size: Size) -> list[Case]:
    """Return cases with a job on a schedule for a day: more calls to a service, and more CPU, for some minutes."""
    return [_job(size, number) for number in range(JOBS)]


def _job(size: Size, number: int) -> Case:
    rng = np.random.default_rng([7, number, *size.seeds])
    spec = MeshSpec(services=size.services, seed=size.seed(number), without_resources=0.0)
    mesh = mesh_of(spec)
    calls, cpu = float(rng.uniform(*JOB_CALLS)), float(rng.uniform(*JOB_CPU))
    caller, service = draw_call_with_room(mesh, calls, rng)
    minutes, every = int(rng.integers(JOB_MINUTES[0], JOB_MINUTES[1] + 1)), JOB_EVERY[number % len(JOB_EVERY)]
    job = Work(service, BEGINS, minutes * 4, every * 4, cpu, caller=caller, calls=calls)
    name = f"seed {spec.seed}: job of {minutes} minutes every {every}, {calls:.0f} times the calls, CPU {cpu:.0%}"
    expectation = Expectation(Form.COUNT, max_incidents=2, services=frozenset({caller, service}))
    return Case("jobs", name, spec, expectation, (job,), length=DAY_TICKS)


def draw_call_with_room(mesh: MeshPhysics, factor: float, rng: np.random.Generator) -> tuple[str, str]:
    """Draw a call whose service stays within capacity with this many times the calls; return caller and service."""
    topology = mesh.topology
    source, to = topology.source, topology.destination
    flow = mesh.usual_rate[source] * topology.calls_per_request * ~topology.latent_calls
    load = mesh.usual_utilisation[to] * (1.0 + (factor - 1.0) * flow / np.maximum(mesh.usual_rate[to], 1e-9))
    is_leaf = np.bincount(source[~topology.latent_calls], minlength=len(mesh.usual_rate)) == 0
    calls = np.flatnonzero((flow >= JOB_RATE) & (load < FULL) & is_leaf[to])
    if not len(calls):
        raise ValueError(f"expected a call with room for {factor:.1f} times its calls, got none; choose another seed")
    call = int(rng.choice(calls))
    return topology.node_ids[source[call]], topology.node_ids[to[call]]


def canaries(size: Size) -> list[Case]:
    """Return cases with canaries as good as the old versions, promoted or rolled back."""
    group = []
    for number in range(CANARIES):
        spec = MeshSpec(services=size.services, seed=size.seed(number // 10), latent=CANARY_LATENT)
        mesh = mesh_of(spec)
        rng = np.random.default_rng([8, number, *size.seeds])
        name = mesh.topology.node_ids[mesh.canaries[number % len(mesh.canaries), 0]]
        stages = STAGES if number % 2 else int(rng.integers(1, STAGES))
        change = BenignChange("canary", name, BEGINS, float(rng.uniform(*FACTORS["deploy"])), stages=stages)
        end = "promoted" if stages == STAGES else f"back after {stages} stages"
        title = f"seed {spec.seed}: canary of {name}, {end}"
        length = STAGE_TICKS * stages + RETURN_TICKS + 20
        expectation = Expectation(Form.COUNT, alerts_only=True)
        group.append(Case("canaries", title, spec, expectation, (change,), length=length))
    return group


def saturation(size: Size) -> list[Case]:
    """Return cases in which a quiet service's CPU reaches its limit, and its slowest requests take far longer."""
    return [_saturated(size, number, "saturation") for number in range(SATURATIONS)]


def full_cpu(size: Size) -> list[Case]:
    """Return the same cases without harm."""
    return [_saturated(size, number, "full_cpu") for number in range(SATURATIONS)]


def _saturated(size: Size, number: int, group: str) -> Case:
    rng = np.random.default_rng([9, number, *size.seeds])
    spec = quiet_traffic(size.seed(number))
    mesh = mesh_of(spec)
    topology = mesh.topology
    services = np.flatnonzero((mesh.usual_rate >= SATURATED_RATE / 2) & ~topology.latent)
    at = int(rng.choice(services))
    tail, name = float(np.exp(rng.uniform(*np.log(TAIL)))), topology.node_ids[at]
    is_slow = group == "saturation"
    wait = (tail - 1.0) * float(respond(mesh, usual_conditions(mesh)).p99[at] / EXPONENTIAL.max()) if is_slow else 0.0
    work = Work(name, BEGINS, SATURATED_TICKS, cpu=1.0, wait=wait)
    words = f"p99 {tail:.0f} times" if is_slow else "no harm"
    title = f"seed {spec.seed}: {name}, {mesh.usual_rate[at]:.2f} requests/s, CPU 100%, {words}"
    expectation = Expectation(Form.NOTICE, within=NOTICED_WITHIN, services=frozenset({name}))
    if is_slow:
        affected = frozenset({name, *callers(mesh, name)})
        expectation = Expectation(Form.ALERT, within=SATURATED_TICKS, stays=False, services=affected)
    return Case(group, title, spec, expectation, (work,), length=SATURATED_TICKS + 10)


def quiet_traffic(seed: int) -> MeshSpec:
    """Return a mesh whose services get a mean of 0.1 requests/s, measured once a minute."""
    spec = MeshSpec(
        services=SATURATED_SERVICES, calls_per_service=1.8, seed=seed, interval_seconds=60.0, without_resources=0.0
    )
    mesh = mesh_of(spec)
    return replace(spec, load=SATURATED_RATE / float(mesh.usual_rate[~mesh.topology.latent].mean()))


def quiet(size: Size) -> list[Case]:
    """Return cases without events."""
    group = []
    for services in QUIET_SERVICES:
        for seed in size.seeds:
            spec = MeshSpec(services=services, seed=seed)
            name = f"seed {seed}: {services} services, 12 hours without faults"
            group.append(Case("quiet", name, spec, Expectation(Form.FREE), begins=0, length=QUIET_TICKS))
    return group


GROUPS: dict[str, Group] = {
    "traffic": Group(traffic),
    "deploys": Group(deploys),
    "harmless": Group(harmless, alerts=2),
    "gaps": Group(gaps),
    "days": Group(days),
    "jobs": Group(jobs),
    "canaries": Group(canaries),
    "saturation": Group(saturation, failures=0.1),
    "full_cpu": Group(full_cpu),
    "quiet": Group(quiet, is_promise=True),
}


def cases(group: str, size: Size) -> Sequence[Case]:
    return GROUPS[group].make(size)
