"""A process that Ray has given up without ending it ends itself."""

import pytest
from ray.exceptions import RayError, RaySystemError

from serve_app.runtime.worker_setup import CHECK_SECONDS, MAX_MISSES, wait_until_unknown

OWN = {"scorer", "session"}
OTHERS = {"session"}
AWAY = RaySystemError("the head is away")


@pytest.mark.parametrize(
    "answers",
    [
        [*[OTHERS] * MAX_MISSES],
        [OWN, OWN, *[OTHERS] * MAX_MISSES],
        [*[OTHERS] * (MAX_MISSES - 1), OWN, *[OTHERS] * MAX_MISSES],
        [OTHERS, AWAY, AWAY, AWAY, *[OTHERS] * (MAX_MISSES - 1)],
    ],
    ids=["unknown", "known at first", "missing for a moment", "no answers in between"],
)
def test_only_answers_in_a_row_count(answers: list[set[str] | RayError]) -> None:
    left = list(answers)

    def list_names() -> set[str]:
        answer = left.pop(0)
        if isinstance(answer, RayError):
            raise answer
        return answer

    names, pauses = iter([None, None, "", "scorer"]), list[float]()
    assert wait_until_unknown(lambda: next(names), list_names, pauses.append) == "scorer"
    assert not left, "each answer was waited for"
    assert pauses == [CHECK_SECONDS] * (3 + len(answers))
