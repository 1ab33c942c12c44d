"""The compiled reader of JSON against the decoder of single rows: the same snapshot, or no snapshot."""

import json
import random
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import json_rows
from kernels.json_rows import Keys, read_rows
from kernels.library import Backend
from model.snapshot import LARGEST_VALUE, MeshSnapshot
from serve_app.api.codec import JSON, Limits, decode_snapshot, encode_snapshot, json_body, snapshot_document
from serve_app.errors import ServeError
from tests.serve_app.api.snapshot_cases import WRONG, WRONG_TYPES, call, document, snapshots

pytestmark = pytest.mark.skipif(json_rows._BACKEND.library is None, reason="the reader is not compiled")
ANY = Limits()
FULL = document(
    calls=[call(error_rate=0.25, p50_latency=1e-3, p99_latency=1.25e-2), call(destination="shop/db/primary")],
    changes=[{"kind": "deploy", "service": "shop/cart", "reason": 'version "2": faster'}],
    policies=[{"service": "shop/*", "mute": "moves to https://example.org", "team": "shop"}],
    version=1,
)
FULL["services"][0]["signals"] = {"queue_depth": 12, "cpu_throttling": 0.125}


def other_way(body: bytes, limits: Limits = ANY) -> MeshSnapshot:
    """Decode without compiled code."""
    return json_body.decode_by_row(body, limits)


def content(snapshot: MeshSnapshot) -> dict[str, Any]:
    values = {one.name: getattr(snapshot, one.name) for one in fields(snapshot)}
    return {
        name: (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    } | {"owners": [policy.owner for policy in snapshot.policies]}


def require_same(body: bytes, limits: Limits = ANY) -> bool:
    """Check that what compiled code decodes is what the other way decodes. Returns whether it decoded the document."""
    found = json_body.decode_compiled(body, limits)
    if found is not None:
        assert content(found) == content(other_way(body, limits)), body
    return found is not None


def text_of(value: Any, **options: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, **options).encode()


@settings(deadline=None)
@given(snapshots())
def test_snapshots_are_the_same(snapshot: MeshSnapshot) -> None:
    body = encode_snapshot(snapshot, JSON)
    escapes = any("\\" in one for one in json.dumps(snapshot.node_ids, ensure_ascii=False))
    assert require_same(body) or escapes
    shuffled = {name: snapshot_document(snapshot)[name] for name in sorted(snapshot_document(snapshot))}
    assert require_same(text_of(shuffled, indent=1)) or escapes


@pytest.mark.parametrize(
    "body",
    [
        text_of(FULL),
        text_of(FULL, indent="\t"),
        text_of(dict(reversed(FULL.items())), separators=(" , ", " : ")),
        b" \r\n\t" + text_of(FULL) + b"\n ",
        text_of(document(services=[{"name": "é/ü", "namespace": "日本", "metrics": None, "signals": None}], calls=[])),
        text_of(document(services=[{"namespace": "a", "name": "b", "metrics": {}, "signals": {}}], calls=[])),
        text_of({name: value for name, value in document().items() if name != "calls"}),
    ],
)
def test_what_is_plainly_right_is_decoded(body: bytes) -> None:
    assert require_same(body)


TEXT = text_of(FULL).decode()
BAD_NUMBERS = (
    "-0", "-0.0", "-1", "+1", ".5", "1.", "01", "00", "1e", "1e+", "1.e1", "0x1", "1_0", "NaN", "nan", "Infinity",
    "inf", "1e999", "1e-999", "1e16", "9" * 400, "true", "1" + "0" * 400, "1.0.0", "1e1e1", "nul",
)  # fmt: skip
REFUSED = {
    "an escape in a name": TEXT.replace("frontend", "front\\u0065nd"),
    "a key twice": TEXT.replace('"error_rate": 0.25', '"error_rate": 0.25, "error_rate": 0.25'),
    "a key of the document twice": TEXT[:-1] + ', "version": 1}',
    "a key of a change twice": TEXT.replace('"kind": "deploy"', '"kind": "deploy", "kind": "deploy"'),
    "an escaped key of a change twice": TEXT.replace('"kind": "deploy"', '"kind": "deploy", "\\u006bind": "deploy"'),
    "a list twice": TEXT.replace('"calls": [', '"calls": [], "calls": ['),
    "an unknown key": TEXT.replace('"error_rate": 0.25', '"error_rates": 0.25'),
    "a comma at the end": TEXT[:-1] + ",}",
    "a comma at the end of a list": TEXT.replace("}]", "},]"),
    "no comma": TEXT.replace("}, {", "} {"),
    "something behind it": TEXT + "{}",
    "a NUL behind it": TEXT + "\0",
    "a byte order mark": "\ufeff" + TEXT,
    "a space of another kind": TEXT.replace(" ", "\u00a0"),
    "a form feed": TEXT.replace(" ", "\f"),
    "a comment": TEXT.replace("{", "{/**/", 1),
    "a line break in a name": TEXT.replace("frontend", "front\nend"),
    "a NUL in a name": TEXT.replace("frontend", "front\0end"),
    "the wrong bracket": TEXT.replace('"changes": [{', '"changes": [[').replace('faster"}]', 'faster"]]'),
    "a deep list": TEXT.replace('"changes": [', '"changes": [' + "[" * 100_000),
    "an unknown service": TEXT.replace('"destination": "shop/frontend"', '"destination": "shop/frontends"'),
    "a service twice": TEXT.replace('"name": "frontend"', '"name": "cart"'),
    "a call twice": TEXT.replace("shop/db/primary", "shop/frontend"),
    "an empty name": TEXT.replace('"name": "frontend"', '"name": ""'),
    "a slash in a namespace": TEXT.replace('"namespace": "shop"', '"namespace": "sh/op"'),
    "no rate of a call": TEXT.replace('"requests_per_second": 1', '"requests_per_second": null'),
    "the text of a number": TEXT.replace("0.25", '"0.25"'),
    "another version": TEXT.replace('"version": 1', '"version": 2'),
    "a version with a fraction": TEXT.replace('"version": 1', '"version": 1.0'),
    "a long version": TEXT.replace('"version": 1', '"version": 10'),
    "no time": TEXT.replace('"observed_at"', '"policies"'),
    "a time without a zone": TEXT.replace("Z", ""),
    "a time that is a number": TEXT.replace('"2026-03-01T03:14:00Z"', "1"),
    "a long time": TEXT.replace("00Z", "00." + "0" * 100 + "Z"),
    "columns": TEXT.replace('"services": [', '"services": {"name": []}, "x": ['),
    "no services": text_of(document(services=[], calls=[])).decode(),
    "an empty body": "",
    "a number": "1",
    "null": "null",
    **{f"the number {number}": TEXT.replace("0.25", number) for number in (*BAD_NUMBERS, "9" * 400, "1" + "0" * 400)},
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_all_else_is_left_to_the_other_way(text: str) -> None:
    assert text != TEXT
    assert json_body.decode_compiled(text.encode(), ANY) is None


@pytest.mark.parametrize("bad", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"])
@pytest.mark.parametrize("inside", [b"frontend", b"version", b"03:14"])
def test_what_is_not_utf8_is_left_to_the_other_way(bad: bytes, inside: bytes) -> None:
    assert json_body.decode_compiled(text_of(FULL).replace(inside, inside + bad), ANY) is None


@pytest.mark.parametrize("fields", [fields for fields, _, _ in [*WRONG, *WRONG_TYPES]])
def test_documents_with_mistakes_are_left_to_the_other_way(fields: dict[str, Any]) -> None:
    assert json_body.decode_compiled(text_of(document(**fields)), ANY) is None


@pytest.mark.parametrize("limit", ["max_services", "max_calls", "max_changes", "max_policies"])
def test_limits_are_kept(limit: str) -> None:
    count = {"max_services": 3, "max_calls": 2, "max_changes": 1, "max_policies": 1}[limit]
    assert require_same(text_of(FULL), Limits(**{limit: count}))
    assert json_body.decode_compiled(text_of(FULL), Limits(**{limit: count - 1})) is None


def numbers() -> Iterator[str]:
    """Texts of numbers from 0 to ``LARGEST_VALUE``, most of them hard to round."""
    rng = np.random.default_rng(7)
    for exact in rng.random(2000) * 10.0 ** rng.integers(-50, 15, 2000):
        single = np.float32(exact)
        between = (float(single) + float(np.nextafter(single, np.float32(np.inf)))) / 2
        yield from (repr(float(exact)), str(single), repr(between), f"{exact:.40f}", f"{exact:.25e}", f"{exact:.3E}")
        for near in (np.nextafter(between, 0), np.nextafter(between, np.inf)):
            yield from (repr(float(near)), f"{near:.30f}")
    tiny = ("5e-324", "2e-324", "2.4703282292062327e-324", "1.4e-45", "7.006492321624085e-46", "7.1e-46")
    large = ("1e15", "1000000000000000", "1000000000000000.0", "999999999999999.9", "1000000000000000.1")
    whole = ("9007199254740992", "9007199254740993", "9007199254740993e-5", "12345678901234567890", "0", "0e5", "0E-5")
    long = ("1" + "0" * 30 + "e-30", "0." + "0" * 30 + "1", "0." + "1" * 800)
    yield from (*tiny, *large, *whole, *long, "0.0", "1E+2", "1e0", "1e-0", "0.1e1")


def test_numbers_are_rounded_as_in_the_other_way() -> None:
    texts = list(numbers())
    calls = [f'{{"source":"a/{i}","destination":"a/{i}","requests_per_second":{text}}}' for i, text in enumerate(texts)]
    services = [f'{{"namespace":"a","name":"{i}"}}' for i in range(len(texts))]
    at = '"observed_at":"2026-03-01T03:14:00Z"'
    accepted = 0
    for i in range(len(texts)):  # a number that only one way accepts would hide the others
        body = f'{{{at},"services":[{services[i]}],"calls":[{calls[i]}]}}'.encode()
        accepted += require_same(body)
    assert accepted > 0.9 * len(texts)


def test_names_that_collide_cost_no_more_than_others() -> None:
    """Thousands of ids with the same hash are refused at the first long search, so no list of them takes long."""
    keys = Keys(("x",), ("y",), ("z",))

    def body(names: list[str]) -> bytes:
        services = ",".join(f'{{"namespace":"a","name":"{name}"}}' for name in names)
        return f'{{"observed_at":"","services":[{services}],"calls":[]}}'.encode()

    assert read_rows(body([f"{i:08}" for i in range(5000)]), keys, LARGEST_VALUE, None, None) is not None
    assert read_rows(body(colliding_names(500)), keys, LARGEST_VALUE, None, None) is None


def colliding_names(count: int) -> list[str]:
    """Names whose ids share the last bits of their hash, as ``Places`` of ``csrc/json_rows.cpp`` computes it."""
    most, bits = 2**64 - 1, 1023
    found: list[str] = []
    number = 0
    while len(found) < count:
        name = f"{number:08}"
        number += 1
        text = f"a/{name}".encode()
        h = len(text)
        for word in (text[:8], text[8:]):
            h = (h ^ int.from_bytes(word, "little")) * 0x9E3779B97F4A7C15 & most
            h ^= h >> 32
        if h & bits < 2:
            found.append(name)
    return found


PIECES = (
    *('"', "\\", "{", "}", "[", "]", ",", ":", " ", "\n", "\0", "0", "-", "e", "."),
    *("null", "NaN", "\\u0041", "\\ud800"),
    *("true", '"services"', '"error_rate":', "1e400", "9" * 30, "[" * 50, '{"source":', '"version":1,', "é", "\ufeff"),
)


def mutate(body: bytes, rng: random.Random) -> bytes:
    """Change one to three places of a document."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(body) + 1)
        stop = min(len(body), at + rng.choice((0, 1, 1, 2, 8, 40)))
        match rng.randrange(7):
            case 0:
                body = body[:at] + bytes([rng.randrange(256)]) + body[stop:]
            case 1:
                body = body[:at] + rng.choice(PIECES).encode() + body[stop:]
            case 2:
                body = body[:at] + body[stop:]
            case 3:  # text of another place
                start = rng.randrange(len(body) + 1)
                body = body[:at] + body[start : start + rng.choice((1, 5, 30, 200))] + body[at:]
            case 4:
                body = body[:at]
            case 5:  # another digit
                digits = [i for i, character in enumerate(body) if chr(character).isdigit()] or [0]
                at = rng.choice(digits)
                body = body[:at] + rng.choice("0123456789").encode() + body[at + 1 :]
            case _:  # what is between two commas: a field moves, is doubled or vanishes
                parts = body.split(b",")
                part = parts.pop(rng.randrange(len(parts)))
                for _ in range(rng.randrange(3)):
                    parts.insert(rng.randrange(len(parts) + 1), part)
                body = b",".join(parts)
    return body


def require_same_of_mutations(seed: int, count: int) -> int:
    """Check changed documents. Returns how many of them compiled code decoded."""
    rng = random.Random(seed)
    bodies = [text_of(FULL), msgspec.json.encode(FULL), msgspec.json.encode(dict(sorted(FULL.items())))]
    return sum(require_same(mutate(rng.choice(bodies), rng)) for _ in range(count))


def test_changed_documents_are_the_same() -> None:
    assert require_same_of_mutations(seed=11, count=3000) > 100


def test_every_beginning_is_left_to_the_other_way() -> None:
    body = msgspec.json.encode(FULL)
    assert all(json_body.decode_compiled(body[:stop], ANY) is None for stop in range(len(body)))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_left_to_the_other_way(body: bytes) -> None:
    assert json_body.decode_compiled(body, ANY) is None


def test_errors_are_those_of_the_other_way() -> None:
    for text in REFUSED.values():
        try:
            expected: Any = content(other_way(text.encode()))
        except ServeError as error:
            expected = (type(error), error.message, error.details)
        try:
            found: Any = content(decode_snapshot(text.encode()))
        except ServeError as error:
            found = (type(error), error.message, error.details)
        assert found == expected


def test_without_the_library_every_document_is_decoded_in_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "_BACKEND", Backend("reference"))
    assert json_body.decode_compiled(text_of(FULL), ANY) is None
    assert content(decode_snapshot(text_of(FULL))) == content(other_way(text_of(FULL)))
