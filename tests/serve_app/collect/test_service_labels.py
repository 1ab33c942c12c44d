"""Which service a text in the labels of a series names."""

import pytest

from serve_app.collect.service_labels import ADDRESSES, HASHES, ServiceLabels

CART, NO_SERVICE = ("shop", "cart"), ("", "")
HASH = "4f3a9c1d2b5e6f70"


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("cart", CART),
        ("cart.shop.svc.cluster.local", CART),
        ("cart.shop.svc", CART),
        ("cart.shop.svc:8080", CART),
        ("cart.shop.svc.corp.example:443", CART),
        ("ledger.bank.svc.cluster.local", ("bank", "ledger")),
        ("kafka-0.kafka.bank.svc.cluster.local:9092", ("bank", "kafka")),
        ("10-42-7-19.cart.shop.svc.cluster.local", CART),
        # Pods and hashed names.
        ("cart-7d9f8b6c5d-x7k2p", CART),
        ("cart-7d9f8b6c5d", CART),
        ("cart-28475225-x7k2p", CART),
        (f"cart-{HASH}", CART),
        ("cart-0b5e3c9a-1111-4222-8333-123456789abc", CART),
        # Addresses.
        ("203.0.113.7", ADDRESSES),
        ("203.0.113.7:52011", ADDRESSES),
        ("2001:db8::17", ADDRESSES),
        ("[2001:db8::17]:443", ADDRESSES),
        ("::ffff:10.0.0.1", ADDRESSES),
        ("ip-10-0-3-4.eu-west-1.compute.internal", ADDRESSES),
        ("ec2-203-0-113-25.compute-1.amazonaws.com", ADDRESSES),
        ("10-42-7-19.shop.pod.cluster.local", ADDRESSES),
        # Identifiers.
        ("3f4e8a1b2c9d", HASHES),
        ("0b5e3c9a-1111-4222-8333-123456789abc", HASHES),
        # The pod itself.
        ("localhost", NO_SERVICE),
        ("127.0.0.1:8080", NO_SERVICE),
        ("[::1]:80", NO_SERVICE),
        # Names that look like one of these.
        *(
            (name, ("shop", name))
            for name in (
                "ledger.v2", "api.stripe.com", "cart:8080", "cart-v2", "kafka-0", "cart-https", "deadbeefcafe",
                "a1b2c3", "order-20240101", "checkout-production", "1.2.3", "unknown", "web-1a2b3c4d",
                "svc", "cart.svc",
            )
        ),
    ],
)  # fmt: skip
def test_a_service_is_one_however_it_is_named(name: str, service: tuple[str, str]) -> None:
    assert ServiceLabels().read(("shop",), (name,)) == service


@pytest.mark.parametrize(
    ("namespaces", "names", "service"),
    [
        (("shop",), ("cart", "cart.bank.svc"), CART),
        (("unknown", "cart.shop.svc.cluster.local"), ("cart", "cart.shop.svc.cluster.local"), CART),
        (("unknown", "cart.shop.svc:80"), ("unknown", "cart.shop.svc:80"), CART),
        (("shop", "cart.shop.svc"), ("unknown", "cart.shop.svc"), CART),
        (("", "cart.shop.svc.cluster.local:8080"), ("", "", "cart.shop.svc.cluster.local:8080"), CART),
        (("unknown", "api.stripe.com"), ("api.stripe.com", "api.stripe.com"), ("external", "api.stripe.com")),
        (("unknown", "unknown"), ("cart", "unknown"), ("unknown", "cart")),
        (("unknown", ""), ("cart", ""), ("unknown", "cart")),
        (("east.unknown", "cart.shop.svc"), ("cart", "cart.shop.svc"), ("east.shop", "cart")),
        (("unknown.unknown", "cart.shop.svc"), ("cart", "cart.shop.svc"), ("unknown.shop", "cart")),
        (("east.shop",), ("cart.bank.svc",), ("east.bank", "cart")),
    ],
)
def test_a_host_tells_what_other_labels_do_not(
    namespaces: tuple[str, ...], names: tuple[str, ...], service: tuple[str, str]
) -> None:
    assert ServiceLabels().read(namespaces, names) == service


def test_without_namespaces_a_host_tells_the_name_only() -> None:
    assert ServiceLabels().read(("default",), ("cart.shop.svc:80",), is_fixed=True) == ("default", "cart")


def test_names_that_are_no_services_are_known_by_kind() -> None:
    labels = ServiceLabels()
    for namespace, name in [
        ("shop", "cart"),
        ("shop", "203.0.113.1"),
        ("bank", "203.0.113.1"),
        ("shop", "3f4e8a1b2c9d"),
        ("shop", "cart-7d9f8b6c5d-x7k2p"),
        ("shop", "localhost"),
    ]:
        labels.read((namespace,), (name,))
    assert labels.folded == {"203.0.113.1": "addresses", "3f4e8a1b2c9d": "hashes", "cart-7d9f8b6c5d-x7k2p": "pods"}
