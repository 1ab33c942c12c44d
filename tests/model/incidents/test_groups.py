"""Groups are connected by calls."""

import numpy as np

from model.incidents.matching import groups


def test_groups_are_connected_by_direct_calls_between_members() -> None:
    member = np.array([True, True, False, True, True, True, True, False])
    confirmed = np.zeros(8, bool)
    confirmed[5] = True
    # 0-1 are connected directly; 1-2-3 only through 2, which is no member; 4 is alone; 5-6 is confirmed by 5.
    calls = np.array([[0, 1, 2, 6], [1, 2, 3, 5]])
    found = groups(member, confirmed, calls)
    assert found[0].confirmed
    assert found[0].rows.tolist() == [5, 6]
    assert sorted(g.rows.tolist() for g in found[1:]) == [[0, 1], [3], [4]]
    assert not any(g.confirmed for g in found[1:])


def test_no_services_make_no_groups() -> None:
    assert groups(np.zeros(3, bool), np.zeros(3, bool), np.array([[0], [1]])) == []
    assert groups(np.zeros(0, bool), np.zeros(0, bool), np.zeros((2, 0), np.int64)) == []
