"""The session that adds up, from the counts of gates to the factor that they get back."""

import logging

import pytest

from serve_app.deployments.sla import counts
from serve_app.deployments.sla.counts import Outcome, RequestCounts
from serve_app.deployments.sla.recent import RECENT_SECONDS
from serve_app.exporter import PrometheusInstruments
from tests.serve_app.deployments.sla.test_sla import Service, push

REPORTS = round(RECENT_SECONDS / counts.REPORT_SECONDS)


def late(process: RequestCounts) -> None:
    """Twenty pushes in five seconds, all beyond the target."""
    push(seconds=1.5, times=20)(process)


def text_of(service: Service) -> str:
    return PrometheusInstruments(replica="test").text([], [], service.levels.level()).decode()


def test_recent_pushes_alone_decide_and_the_action_is_shown_logged_and_measured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service(least_admission=0.25)
    service.run(300, push(times=20))
    assert service.levels.level().actions == ()
    assert "tagae_sla_admission_ratio 1.0" in text_of(service)
    with caplog.at_level(logging.WARNING):
        service.run(20, late)  # shorter than the trial of the step
    [action] = service.levels.level().actions
    assert (action.name, action.objective, action.bound) == ("tighten_admission", "p95", 0.25)
    assert action.value == pytest.approx(1.5, rel=0.05)
    assert "tagae_sla_admission_ratio 0.5" in text_of(service)
    messages = [one.getMessage() for one in caplog.records if "limit of admission" in one.getMessage()]
    assert messages == [
        f"service level: the limit of admission is multiplied by 0.5, no longer by 1; it began because "
        f"p95 was {action.value:.3g}"
    ]


def test_the_factor_is_the_answer_to_a_report() -> None:
    service = Service(least_admission=0.25)
    service.run(30, late)
    assert service.levels.take(service.processes[0].report()) == service.levels.level().admission == 0.5


def test_without_act_nothing_is_done() -> None:
    service = Service(least_admission=0.25, act=False)
    service.run(20, late)
    assert service.levels.level().actions == ()
    assert service.levels.take(service.processes[0].report()) == 1.0


def test_by_default_admission_is_widened_and_never_tightened() -> None:
    def flood(process: RequestCounts) -> None:
        push(times=20)(process)
        push(Outcome.SHED, times=5)(process)

    service = Service()
    service.run(300, late)
    assert service.levels.level().actions == ()
    service.run(30, push(times=20))
    service.run(20, flood)
    [action] = service.levels.level().actions
    assert (action.name, action.objective, action.factor) == ("widen_admission", "requests_per_second", 2.0)


def test_a_session_that_takes_over_does_not_take_the_past_for_recent() -> None:
    service = Service()
    service.run(300, late)
    successor = Service(clock=service.clock)
    service.processes[0]._reports = 0
    successor.levels.take(service.processes[0].report())
    level = successor.levels._recent.level(1.0, service.clock())
    assert level.pushes == 0
    assert successor.levels.level().pushes == {"served": 1200}


@pytest.mark.parametrize("processes", [1, 3])
def test_what_is_recent_is_forgotten_and_counts_once(processes: int) -> None:
    service = Service(processes=processes)
    service.run(100, push(Outcome.SHED, times=3))
    service.run(60, push(times=2))
    level = service.levels._recent.level(1.0, service.clock())
    assert (level.shed, level.pushes) == (0, processes * REPORTS * 2)
    assert level.served == level.on_time == pytest.approx(2 / counts.REPORT_SECONDS)
    service.clock.now += RECENT_SECONDS
    assert service.levels._recent.level(1.0, service.clock()).pushes == 0
