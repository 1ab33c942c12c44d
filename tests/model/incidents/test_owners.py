"""Owners of services: patterns of the settings, policies of the snapshot, teams of incidents."""

import pytest

from model.incidents.owners import Owners, add_owners
from model.names import as_service_id
from model.snapshot import Owner, ServicePolicy
from model.verdict import Incident, Suspect
from tests.builders import incident, verdict

CHECKOUT, STORE, EDGE, BASE = (Owner(name, f"#{name}") for name in ("checkout", "store", "edge", "base"))
PATTERNS = [("*/*", BASE), ("shop/*", STORE), ("shop/cart*", CHECKOUT), ("shop/cart", EDGE), ("*/gateway", EDGE)]


@pytest.mark.parametrize(
    ("service", "owner"),
    [
        ("shop/web", STORE),
        ("shop/cart", EDGE),  # the name itself is more specific than any pattern
        ("shop/cart-db", CHECKOUT),
        ("shop/gateway", EDGE),  # eight characters against five
        ("pay/bank", BASE),
        ("shopping/web", BASE),
    ],
)
def test_the_most_specific_pattern_counts(service: str, owner: Owner) -> None:
    assert Owners(PATTERNS, ()).find(service) == owner
    assert Owners(PATTERNS[::-1], ()).find(service) == owner


def test_patterns_have_no_other_special_characters() -> None:
    owners = Owners([("shop/a.b", STORE), ("shop/[x]", EDGE)], ())
    assert [owners.find(name) for name in ("shop/a.b", "shop/aXb", "shop/x")] == [STORE, None, None]


def test_a_pattern_matches_the_original_name_and_the_id() -> None:
    service = as_service_id("shop/bank gateway")
    assert service != "shop/bank gateway"
    for pattern in ("shop/bank gate*", service):
        assert Owners([(pattern, STORE)], ()).find(service) == STORE


def test_settings_count_before_policies_and_those_of_a_service_before_its_namespace() -> None:
    policies = [
        ServicePolicy("shop/*", owner=STORE),
        ServicePolicy("shop/cart", mute="moved", owner=CHECKOUT),
        ServicePolicy("shop/web", mute="moved"),
    ]
    owners = Owners([("shop/pay", EDGE)], policies)
    found = [owners.find(f"shop/{name}") for name in ("cart", "web", "pay")]
    assert found == [CHECKOUT, STORE, EDGE]
    assert owners.find("pay/bank") is None
    assert Owners((), ()).find("shop/cart") is None


def add_owners_to(suspects: tuple[str, ...], affected: tuple[str, ...]) -> Incident:
    one = incident(*affected, suspects=tuple(Suspect(name, 0.5) for name in suspects))
    policies = [ServicePolicy("shop/*", owner=STORE), ServicePolicy("shop/cart", owner=CHECKOUT)]
    after = add_owners(verdict(one, suspects=one.suspects), Owners((), policies))
    assert after.suspects == after.incidents[0].suspects
    return after.incidents[0]


def test_an_incident_belongs_to_the_team_of_its_first_suspect() -> None:
    found = add_owners_to(("shop/cart", "pay/bank"), ("shop/web", "shop/cart", "shop/mail", "pay/bank"))
    assert found.owner == CHECKOUT
    assert [one.owner for one in found.suspects] == [CHECKOUT, None]
    assert found.teams == ("store", "checkout")  # two services, and one


def test_an_incident_whose_first_suspect_has_no_owner_belongs_to_no_team() -> None:
    assert add_owners_to(("pay/bank", "shop/cart"), ("shop/web",)).owner is None
    assert add_owners_to((), ("shop/web",)).owner == STORE
    assert add_owners_to((), ()).owner is None
