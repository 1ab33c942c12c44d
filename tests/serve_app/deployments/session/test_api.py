"""The API of a session: where its methods run, and what cannot be called."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import pytest

from serve_app.deployments.session.api import SessionApi


class Subject:
    """A subject whose methods return the thread that they run in."""

    def view(self, *, suffix: str = "") -> str:
        return threading.current_thread().name + suffix

    async def wait(self) -> str:
        return threading.current_thread().name

    def _load(self) -> str:
        raise AssertionError("private")


SUBJECTS = [field.name for field in fields(SessionApi) if field.name != "page_thread"]


@pytest.fixture
def api() -> SessionApi:
    subjects: dict[str, Any] = dict.fromkeys(SUBJECTS, Subject())
    return SessionApi(**subjects, page_thread=ThreadPoolExecutor(1, "viewing"))


async def test_views_run_in_the_thread_of_the_page_and_coroutines_in_the_event_loop(api: SessionApi) -> None:
    threads = {subject: await api.call(subject, "view") for subject in SUBJECTS}
    views = {subject for subject, thread in threads.items() if thread == "viewing_0"}
    assert views == {"pages", "past", "incidents", "reports"}
    here = threading.current_thread().name
    assert here not in threads.values()
    assert {await api.call(subject, "wait") for subject in SUBJECTS} == {here}
    assert await api.call("pages", "view", suffix="!") == "viewing_0!"


@pytest.mark.parametrize(
    ("subject", "method"),
    [
        ("pages", "_load"),
        ("meshes", "__reduce__"),
        ("meshes", "delete"),
        ("page_thread", "shutdown"),
        ("call", "view"),
        ("__class__", "mro"),
        ("missing", "view"),
    ],
)
async def test_only_public_methods_of_subjects_can_be_called(api: SessionApi, subject: str, method: str) -> None:
    with pytest.raises(AttributeError, match=method):
        await api.call(subject, method)
