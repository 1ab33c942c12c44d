"""Figures of the benchmark of `sla.act`."""

from benchmarks.bench_actions import SLOT_SECONDS, TARGET_SECONDS, Seen, figures_of, recovery, slots_of

GOOD, BAD = TARGET_SECONDS, TARGET_SECONDS + 0.1


def test_the_service_has_recovered_when_the_target_is_kept_for_long_enough() -> None:
    assert recovery([BAD, BAD, GOOD, BAD, None, GOOD, GOOD, BAD]) == 5 * SLOT_SECONDS
    assert recovery([GOOD, GOOD]) == 0.0
    assert recovery([BAD, None, BAD]) == 3 * SLOT_SECONDS, "it never has"


def test_answers_are_in_the_slot_in_which_they_came() -> None:
    seen = Seen(answers=[(0.0, 1.0), (4.9, 3.0), (10.0, 2.0)])
    first, second, third = slots_of(seen, 0.0, 15.0)
    assert first is not None
    assert 2.8 < first < 3.0
    assert (second, third) == (None, 2.0)


def test_shares_are_of_the_snapshots_that_were_due_in_the_trouble() -> None:
    seen = Seen(
        due=[0.0, 10.0, 11.0, 12.0, 13.0, 40.0],
        verdicts=[(0.0, 9.0), (10.0, 10.5), (11.0, 14.0), (40.0, 40.1)],
        answers=[(10.5, 0.5), (14.0, 3.0)],
        statuses={200: 4, 429: 3, 504: 2, 503: 1},
    )
    figures = figures_of(seen, 10.0, 20.0, [{"actions": [], "violations": []}])
    assert (figures["due"], figures["on_time"], figures["verdicts"]) == (4, 0.25, 0.5)
    assert (figures["missed_seconds"], figures["shed"], figures["failed"]) == (20.0, 3, 3)
