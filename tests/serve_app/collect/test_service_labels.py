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
        ("Cart.Shop.svc.cluster.local", CART),
        ("cart.shop.svc.corp.example:443", CART),
        ("ledger.bank.svc.cluster.local", ("bank", "ledger")),
        ("kafka-0.kafka.bank.svc.cluster.local:9092", ("bank", "kafka")),
        ("10-42-7-19.cart.shop.svc.cluster.local", CART),
        # Consul's DNS names the namespace in its Enterprise edition only.
        ("cart.service.consul", ("unknown", "cart")),
        ("v1.cart.service.dc1.consul:8080", ("unknown", "cart")),
        ("cart.virtual.bank.ns.consul", ("unknown", "cart")),
        # Pods and hashed names.
        ("cart-7d9f8b6c5d-x7k2p", CART),
        ("cart-7d9f8b6c5d", CART),
        ("cart-28475225-x7k2p", CART),
        (f"cart-{HASH}", CART),
        ("cart-_0_", CART),
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
        ("fe80::1%eth0", ADDRESSES),
        ("http://203.0.113.7:8080/", ADDRESSES),
        ("192.168.1.0/24", ADDRESSES),
        ("crawl-66-249-66-1.googlebot.com", ADDRESSES),
        ("static.7.113.0.203.clients.hoster.example", ADDRESSES),
        ("host203-0-113-7.isp.example", ADDRESSES),
        ("7.113.0.203.in-addr.arpa", ADDRESSES),
        # Identifiers.
        ("3f4e8a1b2c9d", HASHES),
        ("0b5e3c9a-1111-4222-8333-123456789abc", HASHES),
        ("0B5E3C9A-1111-4222-8333-123456789ABC", HASHES),
        ("i-0abcd1234ef567890", HASHES),
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
                "svc", "cart.svc", "cart-1-2-3-4", "cart-v1.2.3.4", "cart.1.300.2.3.example", "i-cart", "cart.consul",
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
        (("unknown", "cart.shop"), ("cart.shop", "cart.shop"), ("unknown", "cart.shop")),
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
    for host in ("cart.shop.svc:80", "cart.service.consul"):
        assert ServiceLabels().read(("default",), (host,), is_fixed=True) == ("default", "cart")


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
    assert labels.folded_names == {
        "203.0.113.1": "addresses",
        "3f4e8a1b2c9d": "hashes",
        "cart-7d9f8b6c5d-x7k2p": "pods",
    }
