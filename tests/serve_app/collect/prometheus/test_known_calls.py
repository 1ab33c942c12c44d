"""Calls that are known are listed, with or without requests."""

from collections.abc import Mapping

import pytest

from serve_app.collect.prometheus.keys import Column, Key, KeyTable
from serve_app.collect.prometheus.known_calls import KNOWN_SECONDS, KnownCalls

Rates = Mapping[Key, float]
WEB: Key = ("shop", "web")
CART: Key = ("shop", "cart")
PAY: Key = ("shop", "pay")
BANK: Key = ("shop", "bank")


class Mesh:
    """The rows of polls, 15 s apart."""

    def __init__(self) -> None:
        self.known, self.now, self.keys = KnownCalls(), 0.0, KeyTable()

    def poll(self, calls: Rates, services: Rates, after: float = 15.0) -> Mapping[Key, float]:
        """Return the calls that are listed."""
        self.now += after
        made, measured = Column.of(calls, self.keys), Column.of(services, self.keys)
        self.known, listed = self.known.see_calls(made, self.now).list_all(made, measured, self.now)
        return listed


WEB_CART: Key = (*WEB, *CART)
WEB_PAY: Key = (*WEB, *PAY)
PAY_BANK: Key = (*PAY, *BANK)
ALL: Rates = {WEB_CART: 40.0, WEB_PAY: 10.0, PAY_BANK: 10.0}
OWN: Rates = {WEB: 60.0, CART: 40.0, PAY: 10.0}


@pytest.mark.parametrize(
    ("calls", "services", "listed"),
    [
        pytest.param({**ALL, WEB_CART: 0.0}, {**OWN, CART: 0.0}, {**ALL, WEB_CART: 0.0}, id="stays flat"),
        pytest.param({WEB_PAY: 10.0, PAY_BANK: 10.0}, OWN, {**ALL, WEB_CART: 0.0}, id="ends"),
        pytest.param({WEB_CART: 40.0, WEB_PAY: 10.0}, OWN, {**ALL, PAY_BANK: 0.0}, id="the only one of its caller"),
        pytest.param({WEB_CART: 40.0, WEB_PAY: 10.0, PAY_BANK: float("nan")}, OWN, {WEB_CART: 40.0, WEB_PAY: 10.0},
                     id="not known"),
        pytest.param({PAY_BANK: 10.0}, {CART: 40.0, PAY: 10.0}, {PAY_BANK: 10.0}, id="nothing of the caller is seen"),
        pytest.param({**ALL, WEB_CART: 0.0}, {WEB: 60.0, PAY: 10.0}, {WEB_PAY: 10.0, PAY_BANK: 10.0},
                     id="the callee has disappeared"),
    ],
)  # fmt: skip
def test_a_known_call_without_requests_is_listed_with_0(calls: Rates, services: Rates, listed: Rates) -> None:
    mesh = Mesh()
    assert mesh.poll(ALL, OWN) == ALL
    assert mesh.poll(calls, services) == listed


def test_a_call_is_forgotten_half_an_hour_after_its_last_request() -> None:
    mesh = Mesh()
    flat, quiet = {**ALL, WEB_CART: 0.0}, {**OWN, CART: 0.0}
    assert WEB_CART not in mesh.poll(flat, quiet), "it was never made"
    assert mesh.poll(ALL, OWN)[WEB_CART] == 40.0
    assert mesh.poll(flat, quiet, KNOWN_SECONDS)[WEB_CART] == 0.0
    assert WEB_CART not in mesh.poll(flat, quiet)
    assert mesh.poll(ALL, OWN)[WEB_CART] == 40.0


def test_a_call_of_another_name_is_no_longer_known() -> None:
    mesh = Mesh()
    mesh.poll(ALL, OWN)
    mesh.known = mesh.known.forget(mesh.keys, mesh.keys.numbers([WEB_CART]))
    assert mesh.poll({WEB_PAY: 10.0, PAY_BANK: 10.0}, OWN) == {WEB_PAY: 10.0, PAY_BANK: 10.0}
