"""The rules of load shedding, with a simulated clock."""

import heapq
from collections import Counter

import pytest

from serve_app.deployments.gate.admission import (
    MAX,
    MAX_RETRY_AFTER_SECONDS,
    MIN,
    RESERVED,
    TARGET_SHARE,
    Admission,
    RequestKind,
    Ticket,
)

DEADLINE = 5.0


def simulate(admission: Admission, clients: int, servers: int, seconds_each: float, duration: float) -> list[float]:
    """Return durations of accepted pushes if clients push in a closed loop and ``servers`` requests run at a time.

    A refused client retries after the time in its refusal.
    """
    free = [0.0] * servers
    events: list[tuple[float, int, object]] = [(i * 0.001, i, None) for i in range(clients)]
    heapq.heapify(events)
    durations = []
    order = clients
    while events and events[0][0] < duration:
        now, _, ticket = heapq.heappop(events)
        order += 1
        if ticket is not None:
            admission.finish(ticket, now)  # type: ignore[arg-type]
            durations.append(now - ticket.began)  # type: ignore[attr-defined]
            heapq.heappush(events, (now, order, None))
            continue
        admitted = admission.admit(RequestKind.PUSH, f"mesh-{order % clients}", now)
        if admitted is None:
            admission.refuse(RequestKind.PUSH, f"mesh-{order % clients}", now)
            heapq.heappush(events, (now + admission.retry_after_seconds(), order, None))
            continue
        begins = max(now, heapq.heappop(free))
        heapq.heappush(free, begins + seconds_each)
        heapq.heappush(events, (begins + seconds_each, order, admitted))
    return durations


@pytest.mark.parametrize("clients", [1, 8, 32, 400, 2000])
@pytest.mark.parametrize("seconds_each", [0.01, 0.05, 0.3])
def test_under_any_load_goodput_stays_and_accepted_requests_are_fast(clients: int, seconds_each: float) -> None:
    admission = Admission(DEADLINE)
    durations = simulate(admission, clients, servers=2, seconds_each=seconds_each, duration=60)
    possible = 60 * min(clients, 2) / seconds_each
    assert len(durations) > 0.85 * possible
    settled = sorted(durations[len(durations) // 4 :])
    # A queue as long as the target, or the minimum that is always admitted.
    bound = max(2 * TARGET_SHARE * DEADLINE, 2 * MIN * seconds_each)
    assert settled[int(0.99 * len(settled))] <= bound


def test_the_limit_grows_only_while_it_is_used() -> None:
    admission = Admission(DEADLINE)
    before = admission.limit
    simulate(admission, clients=1, servers=2, seconds_each=0.01, duration=10)
    assert admission.limit == before
    simulate(admission, clients=400, servers=100, seconds_each=0.01, duration=10)
    assert before < admission.limit <= MAX


def test_a_mesh_with_many_requests_leaves_room_for_the_others() -> None:
    admission = Admission(DEADLINE)
    greedy = [admission.admit(RequestKind.PUSH, "greedy", 0.0) for _ in range(100)]
    assert sum(ticket is not None for ticket in greedy) == admission.limit  # alone it may use the whole limit
    assert admission.admit(RequestKind.PUSH, "modest", 0.1) is None  # now there is no room
    admission.finish(next(t for t in greedy if t), 0.2)
    assert (
        admission.admit(RequestKind.PUSH, "greedy", 0.3) is None
    )  # above its share, because another mesh sends requests
    assert admission.admit(RequestKind.PUSH, "modest", 0.4) is not None


def test_to_ask_for_room_changes_nothing() -> None:
    admission = Admission(DEADLINE)
    taken = [admission.admit(RequestKind.PUSH, "shop", 0.0) for _ in range(4)]
    assert all(taken)
    for i in range(50):
        admission.has_room(RequestKind.PUSH, f"mesh-{i}")
    assert admission.admit(RequestKind.PUSH, "shop", 0.0) is not None, "no other mesh has sent anything"


def test_a_mesh_without_requests_gives_its_share_back() -> None:
    admission = Admission(DEADLINE)
    for i in range(50):
        ticket = admission.admit(RequestKind.PUSH, f"mesh-{i}", 0.0)
        if ticket:
            admission.finish(ticket, 0.0)
    later = MAX_RETRY_AFTER_SECONDS + 1
    took = [admission.admit(RequestKind.PUSH, "alone", later) for _ in range(20)]
    assert sum(ticket is not None for ticket in took) >= int(admission.limit)


def test_pushes_go_before_reads_and_reads_before_baselines() -> None:
    admission = Admission(DEADLINE)
    baselines = [admission.admit(RequestKind.BATCH, f"new-{i}", 0.0) for i in range(20)]
    reads = [admission.admit(RequestKind.READ, "", 0.0) for _ in range(20)]
    pushes = [admission.admit(RequestKind.PUSH, f"mesh-{i}", 0.0) for i in range(20)]
    taken = [sum(ticket is not None for ticket in group) for group in (baselines, reads, pushes)]
    assert taken[0] == admission.limit / 2
    assert taken[1] == RESERVED[RequestKind.READ]  # reads always have a few reserved places
    assert taken[2] >= MIN


def test_all_room_is_released() -> None:
    admission = Admission(DEADLINE)
    for _ in range(3):
        tickets = [admission.admit(kind, f"mesh-{i}", 0.0) for i, kind in enumerate([*RequestKind] * 5)]
        for ticket in tickets:
            if ticket:
                admission.finish(ticket, 0.01)
        assert admission._kinds.total() == 0
        assert not admission._meshes


def test_refused_clients_wait_longer_if_there_are_more_of_them() -> None:
    few, many = Admission(DEADLINE), Admission(DEADLINE)
    for admission, refusals in ((few, 1), (many, 300)):
        for ticket in [admission.admit(RequestKind.PUSH, f"m{i}", 0.0) for i in range(8)]:
            assert ticket
            admission.finish(ticket, 0.0)
        while admission.admit(RequestKind.PUSH, f"m{admission._kinds.total()}", 0.0):
            pass  # until it is full
        for i in range(refusals):
            assert admission.admit(RequestKind.PUSH, f"other-{i}", 0.0) is None
            admission.refuse(RequestKind.PUSH, f"other-{i}", 0.0)
    waits = [[admission.retry_after_seconds() for _ in range(200)] for admission in (few, many)]
    assert 1.0 <= min(waits[0]) <= max(waits[0]) < max(waits[1]) <= MAX_RETRY_AFTER_SECONDS
    for share in (0.25, 0.5, 0.75):  # spread over two thirds of the time, so that they do not all retry at once
        until = MAX_RETRY_AFTER_SECONDS * (1 + 2 * share) / 3
        assert abs(sum(wait < until for wait in waits[1]) / 200 - share) < 0.2


def test_few_clients_are_refused_if_many_wait_for_their_turn() -> None:
    """A client that retries after the time that it takes to serve all others is rarely refused again."""
    admission, counts = Admission(DEADLINE), Counter[bool]()
    clients, pushes_per_second, seconds = 400, 40, 60
    due = [(i * 0.001, i) for i in range(clients)]
    under_way: list[tuple[float, Ticket]] = []
    while due[0][0] < seconds:
        now, client = heapq.heappop(due)
        while under_way and under_way[0][0] <= now:
            admission.finish(under_way[0][1], under_way.pop(0)[0])
        ticket = admission.admit(RequestKind.PUSH, f"mesh-{client}", now)
        counts[ticket is not None] += now > seconds / 2
        if ticket is None:
            admission.refuse(RequestKind.PUSH, f"mesh-{client}", now)
            heapq.heappush(due, (now + admission.retry_after_seconds(), client))
            continue
        done = max(now, under_way[-1][0] if under_way else 0.0) + 1 / pushes_per_second
        under_way.append((done, ticket))
        heapq.heappush(due, (done, client))
    assert counts[False] < 1.5 * counts[True]
