"""The verdicts of a trial, and how they answer."""

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

SETTLED = 6  # snapshots after the beginning, from which an answer counts


@dataclass(frozen=True, slots=True)
class Marked:
    """How a trial was answered.

    Attributes:
        trial, seed: which.
        is_found: whether there was an alert as there should be, and none where there should be none.
        is_service, is_action: whether in most snapshots the right service comes first, and the next step fits. Of two
            faults at the same time, both have to lead: an alert each, or the first two suspects of one.
        said: headline and next step of the last alert, and what was expected; for people.
    """

    trial: str
    seed: int
    is_found: bool
    is_service: bool
    is_action: bool
    said: str


def score_trial(name: str, seed: int) -> Marked:
    """Score a trial from an empty state with the default settings. A worker can run it."""
    torch.set_num_threads(1)
    trial = TRIALS[name](np.random.default_rng([seed, *name.encode()]))
    after = list(islice(verdicts(trial.scenario, BEGIN + LASTS, seed, HOMES), BEGIN, None))
    if not trial.answers:
        calm = not any(verdict.alerts for verdict in after)
        return Marked(name, seed, calm, calm, calm, "; ".join(_words(after)))
    shown = [verdict.alerts for verdict in after[SETTLED:] if verdict.alerts]
    count = len(trial.answers)
    service = _mostly([all(set(one.first) & _leading(alerts, count) for one in trial.answers) for alerts in shown])
    action = _mostly([all(_advises(alerts, one, count) for one in trial.answers) for alerts in shown])
    wanted = "; ".join(f"{' or '.join(one.first)}: {' or '.join(one.action)}" for one in trial.answers)
    return Marked(name, seed, bool(shown), service, action, f"{'; '.join(_words(after))} (expected {wanted})")


def _leading(alerts: Sequence[Incident], count: int) -> set[str]:
    """The services that the most urgent alerts name first, for as many faults: an alert each, or one for both."""
    first = {suspect.service for suspect in alerts[0].suspects[:count]}
    return first.union(*({suspect.service for suspect in alert.suspects[:1]} for alert in alerts[:count]))


def _advises(alerts: Sequence[Incident], answer: Answer, count: int) -> bool:
    steps = [next_step(alert, alerts).lower() for alert in alerts[:count]]
    return any(action in step for action in answer.action for step in steps)


def _mostly(held: Sequence[bool]) -> bool:
    return bool(held) and Counter(held)[True] > len(held) / 2


def _words(verdicts: Sequence[Verdict]) -> list[str]:
    last = next((verdict.alerts for verdict in reversed(verdicts) if verdict.alerts), ())
    return [f"{headline(alert, last)} {next_step(alert, last)}" for alert in last]
