"""Watches Ray's processes from the process that started them: the service recovers or exits, and never lingers.

Serve replaces replicas, the proxy and the controller. Nothing replaces the processes of Ray itself (``gcs_server``,
``raylet``): without them nothing can be managed, so systemd, Kubernetes or a person has to start the service again.
"""

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import httpx
import psutil

PERIOD_SECONDS = 0.5
PROBE_PERIOD_SECONDS = 5.0
PROBE_SECONDS = 4.0
IRREPLACEABLE = ("gcs_server", "raylet")
REPLACED_BY_SERVE = ("ServeController", "ServeReplica", "ProxyActor")
SILENCE_FACTOR = 3  # times the recovery time: how long the service may be silent while all its processes run
KILL_ROUNDS, KILL_SECONDS = 5, 1.0  # a killed process may have started another one just before
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


@dataclass(slots=True)
class Watch:
    """What is known about the processes of a service.

    Attributes:
        recovery_seconds: within which a process that ended must be replaced.
        on_demand: roles whose processes come and go.
        expected: roles that the running service has, with one process each at least.
        missing: roles without a process, and since when, s of a monotonic clock.
        answered: when the service last answered, s of the same clock.
    """

    recovery_seconds: float
    answered: float
    on_demand: frozenset[str] = frozenset()
    expected: set[str] = field(default_factory=lambda: set(IRREPLACEABLE))
    missing: dict[str, float] = field(default_factory=dict)

    def reason_to_exit(self, roles: Mapping[str, int], now: float) -> str:
        """Why the service cannot go on, in words; empty: it can.

        Args:
            roles: processes that run, by role.
            now: s of a monotonic clock.
        """
        self.expected |= roles.keys() - self.on_demand
        for role in self.expected:
            if roles.get(role):
                self.missing.pop(role, None)
            else:
                self.missing.setdefault(role, now)
        for role, since in sorted(self.missing.items(), key=lambda item: item[1]):
            if role in IRREPLACEABLE:
                return f"{role} ended, and only a restart of the service replaces it"
            if now - since > self.recovery_seconds:
                return f"{role} ended and was not replaced within {self.recovery_seconds:g} s"
        if now - self.answered > SILENCE_FACTOR * self.recovery_seconds:
            return f"the service has not answered for {now - self.answered:.0f} s"
        return ""


def adopt_orphans() -> None:
    """Become the parent of processes below this one whose parent died, so that none is left behind. Linux only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def watch(
    url: str,
    recovery_seconds: float,
    stop: threading.Event,
    on_demand: frozenset[str] = frozenset(),
    tell: Callable[[tuple[str, ...]], None] = lambda receivers: None,
) -> str:
    """Watch the service of this process until ``stop``, or until it cannot go on.

    Args:
        recovery_seconds: within which a process that ended must be replaced.
        on_demand: roles whose processes come and go.
        tell: gets the problems of receivers of notifications whenever they change.

    Returns:
        Why the service cannot go on; empty: it was stopped.
    """
    state = Watch(recovery_seconds, time.monotonic(), on_demand)
    known: dict[int, str] = {}
    probed = time.monotonic()
    problems: tuple[str, ...] = ()
    # Its own certificate may be of any name, and no secret is sent.
    with httpx.Client(base_url=url, timeout=PROBE_SECONDS, verify=False, trust_env=False) as http:
        while not stop.wait(PERIOD_SECONDS):
            if time.monotonic() - probed > PROBE_PERIOD_SECONDS:
                probed = time.monotonic()
                with suppress(httpx.HTTPError):
                    found = _problems(http.get("/healthz"), problems)
                    state.answered = time.monotonic()
                    if found != problems:
                        tell(found)
                    problems = found
            if reason := state.reason_to_exit(_running_roles(known), time.monotonic()):
                return reason
    return ""


def _problems(answer: httpx.Response, before: tuple[str, ...]) -> tuple[str, ...]:
    """The problems of receivers in an answer; those known before if it says nothing of them."""
    try:
        document = answer.json()
        return tuple(document["receivers"]) if document["model"] else before
    except (ValueError, KeyError, TypeError):  # the service starts, or is overloaded
        return before


def kill_all_below() -> None:
    """End every process below this one, at once, with those that they start meanwhile.

    The processes of Ray itself are only suspended where they end with this one (PR_SET_PDEATHSIG, Linux): when the
    raylet is gone, Ray's library ends this process in its next call, with the exit code 1.
    """
    for _ in range(KILL_ROUNDS):
        running = [one for one in psutil.Process().children(recursive=True) if not _is_zombie(one)]
        others = []
        for process in running:
            with suppress(psutil.NoSuchProcess):
                if sys.platform == "linux" and process.name() in IRREPLACEABLE:
                    process.suspend()
                else:
                    others.append(process)
        for process in others:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if not others:
            return
        psutil.wait_procs(others, KILL_SECONDS)


def _running_roles(known: dict[int, str]) -> dict[str, int]:
    """Processes below this one, counted by role. ``known`` keeps the role of each, since finding it out costs more."""
    roles: dict[str, int] = {}
    found: dict[int, str] = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if _is_zombie(process):
                continue
            if role := known.get(process.pid) or _role(process):
                found[process.pid] = role
                roles[role] = roles.get(role, 0) + 1
    known.clear()
    known.update(found)
    return roles


def _is_zombie(process: psutil.Process) -> bool:
    """Whether it has ended, and no parent has read its exit code."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _role(process: psutil.Process) -> str:
    """Such as ``raylet`` or ``ServeReplica:tagae:Scorer``; empty if it has none, or none yet."""
    if (name := str(process.name())) in IRREPLACEABLE:
        return name
    title = " ".join(process.cmdline()).removeprefix("ray::").split(".")[0].strip()
    return title if title.startswith(REPLACED_BY_SERVE) else ""
