"""Scores the verdicts in a trial."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from benchmarks.blind_trials.trials import BEGIN, HOMES, LASTS, TRIALS, Answer
from benchmarks.calm_again.score import verdicts
from model.verdict import Incident, Verdict
from serve_app.api.headline import headline
from serve_app.api.next_step import next_step

SETTLED = 6  # snapshots after the start, from which an answer counts


@dataclass(frozen=True, slots=True)
class TrialScore:
    """A trial's score.

    Attributes:
        is_found: whether there was an alert if and only if it was due.
        is_service, is_action: whether in most snapshots the right service comes first, and the next step fits. Two
            faults both have to lead: with an alert each, or as one alert's first two suspects.
        text: the last alerts' headlines and next steps, and the expected answer, for people.
    """

    trial: str
    seed: int
    is_found: bool
    is_service: bool
    is_action: bool
    text: str


def score_trial(name: str, seed: int) -> TrialScore:
    """Score a trial from an empty state with the default settings."""
    torch.set_num_threads(1)
    trial = TRIALS[name](np.random.default_rng([seed, *name.encode()]))
    fault_verdicts = list(islice(verdicts(trial.scenario, BEGIN + LASTS, seed, HOMES), BEGIN, None))
    if not trial.answers:
        calm = not any(verdict.alerts for verdict in fault_verdicts)
        return TrialScore(name, seed, calm, calm, calm, "; ".join(_words(fault_verdicts)))
    due = [verdict.alerts for verdict in fault_verdicts[SETTLED:] if verdict.alerts]
    count = len(trial.answers)
    answers = trial.answers
    service = _mostly([all(set(answer.first) & _leading(alerts, count) for answer in answers) for alerts in due])
    action = _mostly([all(_advises(alerts, answer, count) for answer in answers) for alerts in due])
    right = "; ".join(f"{' or '.join(answer.first)}: {' or '.join(answer.action)}" for answer in answers)
    text = f"{'; '.join(_words(fault_verdicts))} (expected {right})"
    return TrialScore(name, seed, bool(due), service, action, text)


def _leading(alerts: Sequence[Incident], count: int) -> set[str]:
    """Return the first suspects of the most urgent alerts, for ``count`` faults: an alert each, or one for both."""
    first = {suspect.service for suspect in alerts[0].suspects[:count]}
    return first.union(*({suspect.service for suspect in alert.suspects[:1]} for alert in alerts[:count]))


def _advises(alerts: Sequence[Incident], answer: Answer, count: int) -> bool:
    steps = [next_step(alert, alerts).lower() for alert in alerts[:count]]
    return any(action in step for action in answer.action for step in steps)


def _mostly(is_right: Sequence[bool]) -> bool:
    return bool(is_right) and Counter(is_right)[True] > len(is_right) / 2


def _words(verdicts: Sequence[Verdict]) -> list[str]:
    last = next((verdict.alerts for verdict in reversed(verdicts) if verdict.alerts), ())
    return [f"{headline(alert, last)} {next_step(alert, last)}" for alert in last]
