"""Ends processes that Ray gave up but could not kill. Ray calls :func:`set_up` in each of its processes.

If Ray's head is lost while a Serve process starts, the new head may consider the process dead without killing it. Serve
starts another one, and the first would keep its memory and its share of the node's CPUs as long as the node runs. So
each Serve process regularly asks Ray whether it is still one of its actors. It does so from its start, because Ray may
give it up before its replica is constructed.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import ray
from ray.exceptions import RayError
from ray.util import list_named_actors

CHECK_SECONDS = 10.0
THREAD = "orphans"
MAX_MISSES = 3  # in a row; a new head might answer before it knows all actors
log = logging.getLogger(__name__)


def set_up() -> None:
    """Start a thread that watches whether Ray knows this process's actor, once it has a named one. Calls after the
    first do nothing."""
    if all(thread.name != THREAD for thread in threading.enumerate()):
        threading.Thread(target=_watch, daemon=True, name=THREAD).start()


def wait_until_unknown(
    read_name: Callable[[], str | None], list_names: Callable[[], set[str]], pause: Callable[[float], None]
) -> str:
    """Wait until this process has a named actor, and until it is missing in several of Ray's answers in a row. A
    missing answer does not count.

    Args:
        read_name: returns the actor's name; None or empty: there is none.
        list_names: asks Ray for the names of all its current actors.
        pause: waits for a number of seconds.

    Returns:
        The name.
    """
    while not (name := read_name()):
        pause(CHECK_SECONDS)
    misses = 0
    while misses < MAX_MISSES:
        pause(CHECK_SECONDS)
        try:
            misses = 0 if name in list_names() else misses + 1
        except RayError as error:  # its head is unreachable
            log.debug("actor %s: Ray did not say whether it knows this actor: %s", name, error)
    return name


def _watch() -> NoReturn:
    def list_names() -> set[str]:
        return {actor["name"] for actor in list_named_actors(all_namespaces=True)}

    name = wait_until_unknown(ray.get_runtime_context().get_actor_name, list_names, time.sleep)
    log.error("actor %s: Ray gave up on this process without ending it; the process exits now", name)
    logging.shutdown()
    os._exit(1)
