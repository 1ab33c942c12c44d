"""Every error of TAGAE has one answer over HTTP and survives pickling between processes."""

import pickle
from collections.abc import Iterator

import pytest

from model import errors as model_errors
from serve_app import errors
from serve_app.api.schemas.problem import problem
from serve_app.errors import ANSWERS, UNEXPECTED, InvalidDocument, Overloaded, ServeError, answer


def _tree(base: type[Exception]) -> Iterator[type[Exception]]:
    yield base
    for child in base.__subclasses__():
        yield from _tree(child)


# Subclasses that another test file defines do not belong to TAGAE.
HOUSE = [
    cls
    for base in (ServeError, model_errors.ModelError)
    for cls in _tree(base)
    if cls.__module__ in (errors.__name__, model_errors.__name__)
]


def test_the_table_holds_every_class_and_nothing_else() -> None:
    assert set(ANSWERS) == set(HOUSE)


def test_slugs_are_unique() -> None:
    codes = [row.code for row in (*ANSWERS.values(), UNEXPECTED)]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("MalformedDocument", 400),
        ("BadMeshName", 400),
        ("UnknownMesh", 404),
        ("StaleSnapshot", 409),
        ("SameTimeOtherContent", 409),
        ("StoreConflict", 409),
        ("DocumentTooLarge", 413),
        ("InvalidDocument", 422),
        ("Overloaded", 429),
        ("CorruptState", 500),
        ("NoCapacity", 503),
        ("DeadlineExceeded", 504),
    ],
)
def test_statuses_that_clients_rely_on(name: str, status: int) -> None:
    assert ANSWERS[getattr(errors, name)].status == status


@pytest.mark.parametrize("cls", HOUSE)
def test_pickling_keeps_class_text_and_details(cls: type[ServeError]) -> None:
    error = cls("expected this, got that", pointer="/calls/17", retry_after_seconds=2.5)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is cls
    assert (str(back), back.details) == (str(error), error.details)
    assert problem(back) == problem(error)


def test_a_problem_carries_pointer_errors_and_retry_after() -> None:
    places = [{"pointer": "/calls/0/source", "detail": "unknown"}]
    body = problem(InvalidDocument("call 0: unknown", pointer="/calls/0/source", errors=places)).model_dump()
    assert body["type"] == "urn:tagae:problem:invalid-document"
    assert (body["status"], body["pointer"], body["errors"]) == (422, "/calls/0/source", places)
    assert problem(Overloaded("full", retry_after_seconds=3.0)).retry_after_seconds == 3.0


def test_a_subclass_is_answered_like_its_nearest_ancestor() -> None:
    class VeryInvalid(InvalidDocument):
        pass

    assert answer(VeryInvalid("x")) is ANSWERS[InvalidDocument]


def test_an_unexpected_error_does_not_show_its_text() -> None:
    body = problem(RuntimeError("password=hunter2"))
    assert body.status == 500
    assert "hunter2" not in body.model_dump_json()


def test_an_error_that_comes_through_ray_has_the_text_of_its_cause() -> None:
    ray_exceptions = pytest.importorskip("ray.exceptions")
    cause = InvalidDocument("call 0: unknown", pointer="/calls/0/source")
    wrapped = ray_exceptions.RayTaskError("score", "a traceback", cause).as_instanceof_cause()
    assert isinstance(wrapped, InvalidDocument)
    assert problem(wrapped) == problem(cause)
