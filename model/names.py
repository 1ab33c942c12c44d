"""Names of services and meshes: which are allowed in ids, and how all others are written.

An id is ``namespace/name``. A telemetry source may have any text as a name, so :func:`escape_name` writes characters
that ids may not contain as ``~HEX~``, the code point in hexadecimal: ``bank gateway`` becomes ``bank~20~gateway``. Two
names never become one, plain names stay unchanged, and an id of ASCII letters needs no encoding in a URL.
:func:`readable` turns ids in a text back into the names that people know.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_letters, digits

import numpy as np

LONGEST_NAME = 253  # characters of a namespace or a name, as Kubernetes allows (RFC 1123 subdomain)
NAME_RULE = (
    f"at most {LONGEST_NAME} letters, digits, '-', '_', '.' and ':', with a letter, a digit or '_' at both ends; a "
    "name may have several such segments, with '/' between them; letters and signs of other alphabets are allowed too, "
    "and other characters are written as ~HEX~, a space as ~20~"
)
# Characters beyond ASCII that ids may contain, as ranges of the basic plane. Left out are those that print nothing or
# only space, that change the direction of writing, and that have no meaning of their own.
_BEYOND_ASCII = (
    r"\xa1-\xac\xae-\u034e\u0350-\u05ff\u0606-\u061b\u061d-\u06dc\u06de-\u070e\u0710-\u088f\u0892-\u08e1\u08e3-\u115e"
    r"\u1161-\u167f\u1681-\u17b3\u17b6-\u180a\u1810-\u1fff\u2070-\u27ff\u2801-\u2fff\u3001-\u3163\u3165-\ud7ff"
    r"\uf900-\ufdcf\ufdf0-\ufdff\ufe10-\ufefe\uff00-\uff9f\uffa1-\uffef"
)
# Code points in hexadecimal, without the letters and digits that need no escape.
_CODE = "[0-2][0-9A-F]|3[A-F]|40|5[B-E]|60|7[B-F]|[89A-F][0-9A-F]|[1-9A-F][0-9A-F]{2,4}|10[0-9A-F]{4}"
_DIGEST = "[0-9a-f]{32}"  # of a name that was too long; it stands for the end of the name
_EDGE = f"(?:[A-Za-z0-9_{_BEYOND_ASCII}]|~(?:{_CODE}|{_DIGEST})~)"
_INSIDE = f"(?:[A-Za-z0-9_.:{_BEYOND_ASCII}-]|~(?:{_CODE}|{_DIGEST})~)"
_SEGMENT = f"{_EDGE}(?:{_INSIDE}*{_EDGE})?"
# The same in Python, in Rust and in ECMAScript, for the schemas of the API.
NAMESPACE_PATTERN = f"^{_SEGMENT}$"
NAME_PATTERN = f"^{_SEGMENT}(?:/{_SEGMENT})*$"
SERVICE_PATTERN = f"^{_SEGMENT}/{_SEGMENT}(?:/{_SEGMENT})*$"
MESH_NAME = r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?"  # safe in paths, labels of metrics and keys

_PLAIN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:-]*[A-Za-z0-9_])?", re.ASCII)
_NAMESPACE, _NAME = re.compile(NAMESPACE_PATTERN), re.compile(NAME_PATTERN)
_ESCAPED = re.compile(f"~({_CODE})~")
_SHORTENED = re.compile(f"~({_DIGEST})~")
_NOT_ALLOWED = re.compile(f"[^A-Za-z0-9_.:{_BEYOND_ASCII}-]|^[.:-]|[.:-]\\Z")
_DIGEST_LENGTH = 34  # characters, with its two signs
# What stays escaped for people too: `/` and `~` would be misread. The others have no shape, so a name would look like
# another one.
_STAYS = {
    *"/~",
    *map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0)),
    *map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))),  # selectors of variants
}


def escape_name(text: str) -> str:
    """Write any text as a name that fits :data:`NAME_RULE`. Different texts get different names.

    A text that fits is returned unchanged, except for ``~``. One that is too long keeps its beginning, with a digest.

    >>> escape_name("PGSQL Query/main")
    'PGSQL~20~Query/main'
    >>> escape_name("订单服务")
    '订单服务'
    """
    if len(text) <= LONGEST_NAME and _PLAIN.fullmatch(text):
        return text
    segments = text.split("/")
    return _shorten(text, "/".join(map(_escape, segments)) if all(segments) else _escape(text))


def escape_namespace(text: str) -> str:
    """As :func:`escape_name`, for a namespace, which ends at the first slash of an id and so contains none.

    >>> escape_namespace("eu/prod")
    'eu~2F~prod'
    """
    return escape_name(text) if "/" not in text else _shorten(text, _escape(text))


def as_service_id(text: str) -> str:
    """Return the id that a person means, who may write the original name. ``namespace/*`` stays unchanged. A text
    without a namespace or a name is returned unchanged.

    >>> as_service_id("shop/bank gateway"), as_service_id("shop/bank~20~gateway")
    ('shop/bank~20~gateway', 'shop/bank~20~gateway')
    """
    namespace, _, name = text.partition("/")
    if not namespace or not name or is_service_name(text):
        return text
    if name != "*" and not _is_good_part(name, is_name=True):
        name = escape_name(name)
    return f"{namespace if _is_good_part(namespace, is_name=False) else escape_namespace(namespace)}/{name}"


def list_first(names: Sequence[str], max_names: int) -> str:
    """Return the first names as one text, with the number of the others.

    >>> list_first(["cart", "payment", "ledger"], 2)
    'cart, payment and 1 more'
    """
    more = len(names) - max_names
    return ", ".join(names[:max_names]) + (f" and {more} more" if more > 0 else "")


def original_name(name: str) -> str:
    """Return the text of which :func:`escape_name` or :func:`escape_namespace` made this name. The end of a name that
    was too long is lost.

    >>> original_name("bank~20~gateway")
    'bank gateway'
    """
    return _ESCAPED.sub(_original, name)


def readable(text: str) -> str:
    """Return a text for people, with original names instead of ids. Characters that print nothing or change the
    direction of writing stay escaped, since they could make a name look like another one.

    >>> readable("shop/bank~20~gateway is failing; a~202E~b is slow")
    'shop/bank gateway is failing; a~202E~b is slow'
    """
    if "~" not in text:
        return text
    return _SHORTENED.sub(lambda match: f"…{match[1][:6]}", _ESCAPED.sub(_readable_character, text))


@dataclass(frozen=True, slots=True)
class BadName:
    """A name that breaks :data:`NAME_RULE`: position among the ids, ``namespace`` or ``name``, and the text."""

    position: int
    part: str
    text: str


def find_bad_name(ids: Sequence[str]) -> BadName | None:
    """Return the first name that breaks :data:`NAME_RULE`, or None.

    Snapshots from the API must pass. :meth:`MeshSnapshot.create` does not check it, because stored snapshots of older
    versions must stay readable.
    """
    if are_plain(ids):
        return None
    return next((bad for i, name in enumerate(ids) if (bad := _bad_part(i, name))), None)


def is_service_name(text: str) -> bool:
    """Return whether the text is ``namespace/name`` by :data:`NAME_RULE`."""
    return "/" in text and _bad_part(0, text) is None


def is_services_name(text: str) -> bool:
    """Return whether the text is ``namespace/name`` or ``namespace/*`` by :data:`NAME_RULE`."""
    namespace, _, name = text.partition("/")
    return is_service_name(f"{namespace}/all" if name == "*" else text)


def _escape(text: str) -> str:
    """One segment, without its limit of length."""
    return _NOT_ALLOWED.sub(lambda match: f"~{ord(match[0]):02X}~", text)


def _shorten(text: str, escaped_text: str) -> str:
    if len(escaped_text) <= LONGEST_NAME:
        return escaped_text
    begin = escaped_text[: LONGEST_NAME - _DIGEST_LENGTH]
    if begin.count("~") % 2:  # within an escaped character
        begin = begin[: begin.rindex("~")]
    return f"{begin}~{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}~"


def _original(match: re.Match[str]) -> str:
    char = chr(int(match[1], 16))
    return match[0] if "\ud800" <= char <= "\udfff" else char  # UTF-8 cannot encode surrogates


def _readable_character(match: re.Match[str]) -> str:
    char = chr(int(match[1], 16))
    return char if char.isprintable() and char not in _STAYS else match[0]


def _bad_part(position: int, node_id: str) -> BadName | None:
    namespace, _, name = node_id.partition("/")
    for part, text in (("namespace", namespace), ("name", name)):
        if not _is_good_part(text, is_name=part == "name"):
            return BadName(position, part, text)
    return None


def _is_good_part(text: str, *, is_name: bool) -> bool:
    return len(text) <= LONGEST_NAME and (_NAME if is_name else _NAMESPACE).fullmatch(text) is not None


_WORD, _INNER, _BOUNDARY = 1, 2, 3  # kinds of bytes; 0: not plain
_CHARACTERS = {_WORD: f"{ascii_letters}{digits}_", _INNER: ".:-", _BOUNDARY: "/\n"}
_KINDS = bytes(next((kind for kind, of in _CHARACTERS.items() if chr(byte) in of), 0) for byte in range(256))


def are_plain(ids: Sequence[str]) -> bool:
    """Return whether all ids are ``namespace/name`` by :data:`NAME_RULE`, of ASCII characters without an escape.

    All are checked at once, ten times as fast as one by one: both neighbours of a boundary must be word characters."""
    text = "\n".join(ids).encode(errors="replace")
    letters = np.frombuffer(text, np.uint8)
    kinds = np.frombuffer((b"\n%b\n" % text).translate(_KINDS), np.uint8)
    boundary = np.flatnonzero(kinds == _BOUNDARY)
    ends = np.append(np.flatnonzero(letters == ord("\n")), len(letters))
    if not kinds.all() or len(ends) != len(ids):  # a byte that is not allowed, or an id with a line break in it
        return False
    if (kinds[boundary[:-1] + 1] != _WORD).any() or (kinds[boundary[1:] - 1] != _WORD).any():
        return False
    starts = np.append(0, ends[:-1] + 1)
    slashes = np.append(np.flatnonzero(letters == ord("/")), len(letters))
    first = slashes[np.searchsorted(slashes, starts)]
    fits = (first < ends) & (first - starts <= LONGEST_NAME) & (ends - first - 1 <= LONGEST_NAME)
    return bool(fits.all())
