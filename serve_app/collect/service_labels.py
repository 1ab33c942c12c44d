"""Finds the service that a series' labels name, in any dialect.

Labels also hold texts that are not service names: the host that a caller used, a pod, a visitor's address, a container
id. A service is one node, however it was addressed, and everything outside the mesh is one node of each kind.

| text | service |
|---|---|
| ``cart.shop.svc.cluster.local:8080`` | ``shop/cart`` |
| ``cart-7d9f8b6c5d-x7k2p``, ``cart-4f3a9c1d2b5e6f70`` | ``cart`` in the same namespace |
| ``cart.service.consul`` | ``cart`` near the caller |
| ``203.0.113.7``, ``[2001:db8::17]:443``, ``ip-10-0-3-4.ec2.internal`` | ``external/addresses`` |
| ``3f4e8a1b2c9d``, ``i-0abcd1234ef567890``, a UUID | ``external/hashes`` |
| ``localhost``, ``127.0.0.1`` | none: the call stays in the pod |
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address

from model.names import escape_name, escape_namespace

LATE = "unknown"  # value of labels that are filled only after a connection
OUTSIDE = "external"  # namespace of everything outside the mesh
ADDRESSES, HASHES = (OUTSIDE, "addresses"), (OUTSIDE, "hashes")
NAMELESS = frozenset({ADDRESSES, HASHES})  # many clients or servers in one node; as callers, they are not services
SAFE = "[bcdfghjklmnpqrstvwxz2456789]"  # Kubernetes generates the ends of names from these, which spell no words
POD_NAMES = "pods"  # the kind of a name that ends like a pod's name

_HOST = re.compile(r"(?:.+[.])?([^.:/]+)[.]([^.:/]+)[.]svc(?:[.][^:/]+)?(?::[0-9]+)?")
_CONSUL = re.compile(r"(?:.+[.])?([^.]+)[.](?:service|virtual|connect)(?:[.].+)?[.]consul(?::[0-9]+)?")
_URL = re.compile(r"(?:[a-z]+://)?(?:\[(?P<six>[^\]]+)\]|(?P<four>[^:/]+))(?::[0-9]+)?(?:/.*)?")
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_NUMBERED = re.compile(  # machines, pods and clients in DNS
    r"(?:ip-|ec2-)?[0-9]{1,3}(?:-[0-9]{1,3}){3}(?:[.].+)?"
    rf"|(?:.*[^0-9])?{_OCTET}([.-]){_OCTET}\1{_OCTET}\1{_OCTET}(?:[^0-9].*)?[.][a-z][a-z0-9-]+"
)
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_HASH = re.compile(f"(?=.*[0-9])[0-9a-f]{{12,64}}|{_UUID}|i-[0-9a-f]{{8,17}}", re.IGNORECASE)  # i-: machines
_POD = re.compile(
    f"(.+?)-(?:(?:{SAFE}{{8,10}}|[0-9]{{8,10}})-{SAFE}{{5}}"
    f"|(?=[a-z]*[0-9])(?=[0-9]*[a-z]){SAFE}{{8,10}}|(?=[a-f]*[0-9])[0-9a-f]{{16,64}}|{_UUID}|_[0-9]+_)"
)


@dataclass(slots=True)
class ServiceLabels:
    """Reads names, and caches them: a mesh has few names in many series.

    Attributes:
        folded_names: names that are not services, with their kind: ``addresses``, ``hashes`` or ``pods``.
    """

    folded_names: dict[str, str] = field(default_factory=dict)
    _cache: dict[tuple[tuple[str, ...], tuple[str, ...], bool], tuple[str, str]] = field(default_factory=dict)

    def read(self, namespaces: tuple[str, ...], names: tuple[str, ...], *, is_fixed: bool = False) -> tuple[str, str]:
        """Return the namespace and name of a service, as in ids; one of them is empty if the labels name none.

        Args:
            namespaces, names: values of the labels that may contain them, the best first. A host may contain both.
            is_fixed: the dialect has no namespaces, so a host's namespace is ignored.
        """
        labels = namespaces, names, is_fixed
        service = self._cache.get(labels)
        if service is None:
            name = next((value for value in names if value and value != LATE), LATE if LATE in names else "")
            namespace, name = self._read(_namespace(namespaces), name, is_fixed=is_fixed)
            service = self._cache[labels] = escape_namespace(namespace), escape_name(name)
        return service

    def _read(self, namespace: str, name: str, *, is_fixed: bool) -> tuple[str, str]:
        text = name
        if host := _HOST.fullmatch(name.lower()):
            name = host[1]
            namespace = namespace if is_fixed else _in_cluster_of(namespace, host[2])
        elif host := _CONSUL.fullmatch(name.lower()):
            name = host[1]
            namespace = namespace if is_fixed else _in_cluster_of(namespace, LATE)
        elif is_address(name):
            if _is_loopback(name):
                return "", ""
            self.folded_names[text] = ADDRESSES[1]
            return ADDRESSES
        if _HASH.fullmatch(name):
            self.folded_names[text] = HASHES[1]
            return HASHES
        if pod := _POD.fullmatch(name):
            self.folded_names[text], name = POD_NAMES, pod[1]
        return namespace, name


def is_late(namespace: str) -> bool:
    """Return whether a namespace is unknown, even if its cluster is known."""
    return namespace == LATE or namespace.endswith((f".{LATE}", "."))


def is_address(name: str) -> bool:
    """Return whether a name is an address, or derived from one, with or without a port."""
    return name == "localhost" or _NUMBERED.fullmatch(name) is not None or _parse(name) is not None


def _is_loopback(name: str) -> bool:
    address = _parse(name)
    return name == "localhost" or (address is not None and address.is_loopback)


def _parse(name: str) -> IPv4Address | IPv6Address | None:
    url = _URL.fullmatch(name)
    try:
        return ip_address((url["six"] or url["four"]) if url else name)
    except ValueError:
        return None


def _namespace(values: Sequence[str]) -> str:
    """Return the first namespace; if its label was not filled, the namespace of the host that was called."""
    first = next(filter(None, values), "")
    if is_late(first):
        for namespace in filter(None, map(_host_namespace, values)):
            return _in_cluster_of(first, namespace)
        return OUTSIDE if any(value.count(".") > 1 for value in values[1:]) else first  # `cart.shop` may be a service
    return _host_namespace(first) or first


def _host_namespace(text: str) -> str:
    host = _HOST.fullmatch(text.lower())
    return host[2] if host else ""


def _in_cluster_of(namespace: str, other_namespace: str) -> str:
    """Return another namespace in the same cluster, where namespaces begin with one."""
    cluster, dot, _ = namespace.rpartition(".")
    return f"{cluster}{dot}{other_namespace}"
