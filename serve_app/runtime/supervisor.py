"""Watches Ray's processes from the process that started them. Also kills them, so that none is left behind.

Serve replaces replicas, the proxy and the controller. Nothing replaces Ray's own processes (``gcs_server``, and
``raylet``, which ends with its agents): without them, nothing can be managed, so the service starts again
(:mod:`serve_app.runtime.keeper`).
"""

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

import httpx
import psutil

PERIOD_SECONDS = 0.1  # Ray's agents notice the same up to half a second later, and print pages of logs
PROBE_PERIOD_SECONDS = 5.0
PROBE_SECONDS = 10.0  # the gate itself answers sooner if nothing behind it does
IRREPLACEABLE = ("gcs_server", "raylet")
# Serve replaces a proxy within 20 s. On an overloaded machine, that takes longer, and another start would take even
# longer. Several requests must fail, since the whole machine may have paused.
MAX_SILENCE_SECONDS, MIN_SILENT_PROBES = 180.0, 3
KILL_ROUNDS, KILL_SECONDS = 5, 1.0  # a killed process may have just started another one
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent died, so that none is left behind. Linux only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class News:
    """The service's messages about itself.

    Attributes:
        receivers: problems of notification receivers.
        replays: the share of the past that has been read, 0 to 1, by new mesh.
    """

    receivers: tuple[str, ...] = ()
    replays: tuple[tuple[str, float], ...] = ()


def watch(url: str, stop: threading.Event, report: Callable[[News], None] = lambda news: None) -> str:
    """Watch this process's service until ``stop``, or until it cannot continue.

    Returns:
        Why the service cannot continue; empty: it was stopped.
    """
    answered_at = probed_at = time.monotonic()
    silent_probes, processes = 0, _find_irreplaceable()  # number of unanswered requests in a row
    news = News()
    # The certificate may have any name, and no secret is sent.
    with httpx.Client(base_url=url, timeout=PROBE_SECONDS, verify=False, trust_env=False) as http:
        while not stop.wait(PERIOD_SECONDS):
            if time.monotonic() - probed_at > PROBE_PERIOD_SECONDS:
                probed_at = time.monotonic()
                silent_probes += 1
                with suppress(httpx.HTTPError):
                    before, news = news, _read_news(http.get("/healthz"), news)
                    answered_at, silent_probes = time.monotonic(), 0
                    if news != before:
                        report(news)
            silence = time.monotonic() - answered_at if silent_probes >= MIN_SILENT_PROBES else 0.0
            running = {name for name, process in processes.items() if not _is_zombie(process)}
            if reason := reason_to_restart(running, silence):
                return reason
    return ""


def reason_to_restart(running: Collection[str], silent_seconds: float) -> str:
    """Why the service cannot continue; empty: it can."""
    for name in IRREPLACEABLE:
        if name not in running:
            return f"{name} ended, and nothing replaces it"
    if silent_seconds > MAX_SILENCE_SECONDS:
        return f"the service has not answered for {silent_seconds:.0f} s"
    return ""


def _read_news(answer: httpx.Response, before: News) -> News:
    """The news in an answer; the previous news if it has none."""
    try:
        document = answer.json()
        replays = tuple((replay["mesh"] or "a mesh", float(replay["share"])) for replay in document["replays"])
        return News(tuple(document["receivers"]), replays) if document["model"] else before
    except (ValueError, KeyError, TypeError):  # the service is starting or overloaded
        return before


def kill_all_below() -> None:
    """Kill all descendants of this process at once, including any that they start meanwhile.

    Ray's own processes are only suspended if they end with this one (PR_SET_PDEATHSIG, Linux): when the
    raylet is gone, Ray's library ends this process in its next call, with the exit code 1.
    """
    for _ in range(KILL_ROUNDS):
        running = [process for process in psutil.Process().children(recursive=True) if not _is_zombie(process)]
        killed_processes = []
        for process in running:
            with suppress(psutil.NoSuchProcess):
                if sys.platform == "linux" and process.name() in IRREPLACEABLE:
                    process.suspend()
                else:
                    killed_processes.append(process)
        for process in killed_processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if not killed_processes:
            return
        psutil.wait_procs(killed_processes, KILL_SECONDS)


def _find_irreplaceable() -> dict[str, psutil.Process]:
    """Ray's own processes, which this one started, by name."""
    running = [process for process in psutil.Process().children() if not _is_zombie(process)]
    return {name: process for process in running if (name := process.name()) in IRREPLACEABLE}


def _is_zombie(process: psutil.Process) -> bool:
    """Whether it has ended, and no parent has read its exit code."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
