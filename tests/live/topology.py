"""A small shop: its services, their calls, and their durations."""

from dataclasses import dataclass

NAMESPACE = "shop"


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a service makes while it answers.

    Attributes:
        to: the service called.
        share: of its requests that make the call.
        needed: if this call fails, the answer fails. Otherwise the service answers without it.
    """

    to: str
    share: float = 1.0
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Service:
    """One service.

    Attributes:
        name: in the namespace ``shop``.
        seconds: median of its own time for a request, which is log-normal.
        spread: sigma of its logarithm.
        calls: made one after another.
    """

    name: str
    seconds: float
    spread: float = 0.35
    calls: tuple[Call, ...] = ()


SHOP = (
    Service("edge", 0.002, calls=(Call("storefront"),)),
    Service(
        "storefront",
        0.008,
        calls=(Call("catalogue"), Call("cart", 0.5), Call("checkout", 0.25)),
    ),
    Service("catalogue", 0.006, calls=(Call("stock", 0.6, needed=False),)),
    Service("cart", 0.005),
    Service("checkout", 0.010, calls=(Call("cart"), Call("stock"), Call("payment"))),
    Service("payment", 0.020),
    Service("stock", 0.004),
)
ENTRY = "edge"  # receives the traffic from outside


def node(name: str) -> str:
    """Return a service's id in a snapshot."""
    return f"{NAMESPACE}/{name}"


def expected_rates(entry: float, services: tuple[Service, ...] = SHOP) -> dict[tuple[str, str], float]:
    """Return calls a second by (source, destination) without faults, at ``entry`` requests a second."""
    into = {service.name: 0.0 for service in services}
    into[ENTRY] = entry
    made: dict[tuple[str, str], float] = {}
    for service in services:  # callers come before their callees
        for call in service.calls:
            rate = into[service.name] * call.share
            made[service.name, call.to] = rate
            into[call.to] += rate
    return made
