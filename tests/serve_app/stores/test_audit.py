"""The audit log in the stores: nothing is lost, limits hold, and pages lead through all of it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest

from serve_app.api.schemas.audit import AuditRecordDocument
from serve_app.stores.audit import PREFIX, AuditFilter, AuditLog, key_of, line_of
from serve_app.stores.documents import EndedIds
from serve_app.stores.records import Retention
from serve_app.stores.row_store import SERVICE, Change, Row, under
from serve_app.stores.rows import sealed
from serve_app.stores.state_store import StateStore

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMIT = Retention(timedelta(days=30), 2**24)


def record(number: int, **fields: object) -> AuditRecordDocument:
    made = AuditRecordDocument(
        id=f"r{number}",
        at=NOW + timedelta(seconds=number),
        user="ada",
        subject="",
        way="token",
        action="add_mute",
        route="POST /v1/meshes/{mesh}/mutes",
        mesh="shop",
        names=[],
        address="",
        request="",
        status=None,
    )
    return made.model_copy(update=fields)


def every(log: AuditLog, query: AuditFilter = AuditFilter()) -> list[AuditRecordDocument]:  # noqa: B008
    records: list[AuditRecordDocument] = []
    while True:
        page = log.page(query)
        records += page.records
        if page.next is None:
            return records
        query = replace(query, before=page.next)


def audit_rows(store: StateStore) -> list[Row]:
    (rows,) = store.database.read(SERVICE, under(PREFIX))
    return rows


def ids(records: list[AuditRecordDocument]) -> list[str]:
    return [record.id for record in records]


def test_records_are_listed_newest_first_and_filtered(store: StateStore) -> None:
    log = AuditLog(store, LIMIT, lambda: NOW)
    for number in range(5):
        log.append(record(number, user=("ada", "bob")[number % 2], mesh=("shop", "bank")[number // 3]))
    assert ids(every(log)) == ["r4", "r3", "r2", "r1", "r0"]
    assert ids(every(log, AuditFilter(limit=2))) == ["r4", "r3", "r2", "r1", "r0"], "page by page"
    assert ids(every(log, AuditFilter(user="bob"))) == ["r3", "r1"]
    assert ids(every(log, AuditFilter(mesh="shop", action="add_mute"))) == ["r2", "r1", "r0"]
    since, until = NOW + timedelta(seconds=1), NOW + timedelta(seconds=3)
    assert ids(every(log, AuditFilter(since, until))) == ["r2", "r1"]


def test_a_record_gets_its_outcome(store: StateStore) -> None:
    log = AuditLog(store, LIMIT, lambda: NOW)
    log.append(record(1))
    log.append(record(2))
    assert every(log)[1].status is None, "the change may have been made"
    log.finish(record(1, status=200, names=["shop/cart"]))
    assert [record.status for record in every(log)] == [None, 200]
    assert every(log)[1].names == ["shop/cart"]
    log.append(record(1))
    assert [record.status for record in every(log)] == [None, 200], "calls may be repeated"


def test_nothing_acknowledged_is_lost_between_writers(store: StateStore) -> None:
    writers, each = 4, 12

    def write(writer: int) -> None:
        log = AuditLog(store, LIMIT, lambda: NOW)
        for number in range(each):
            made = record(100 * writer + number, names=["x" * 200] * 20)
            log.append(made)
            log.finish(made.model_copy(update={"status": 200}))

    threads = [Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = AuditLog(store, LIMIT, lambda: NOW)
    records = every(log, AuditFilter(action="add_mute", limit=7))
    assert sorted(ids(records)) == sorted(
        f"r{100 * writer + number}" for writer in range(writers) for number in range(each)
    )
    assert {record.status for record in records} == {200}


def test_old_records_make_room(store: StateStore) -> None:
    log = AuditLog(store, LIMIT, lambda: NOW)
    for number in range(100, 150):
        log.append(record(number, names=["x" * 200] * 20))
    log = AuditLog(
        store, replace(LIMIT, max_bytes=sum(len(value) for _, value in audit_rows(store)[-20:])), lambda: NOW
    )
    log.tidy()
    assert ids(every(log)) == [f"r{number}" for number in range(149, 129, -1)], "the newest, without a gap"
    assert len(audit_rows(store)) == 20


def test_records_expire(store: StateStore) -> None:
    now = [NOW]
    log = AuditLog(store, LIMIT, lambda: now[0])
    for number in range(30):
        log.append(record(number, names=["x" * 200] * 20))
    now[0] += LIMIT.keep + timedelta(seconds=20)
    assert ids(every(log)) == [f"r{number}" for number in range(29, 19, -1)]
    now[0] += timedelta(days=1)
    assert every(log) == []
    log.tidy()
    assert audit_rows(store) == []


def test_names_of_others_cannot_forge_lines() -> None:
    line = line_of(record(1, user='a\n{"id": 1}\u2028\x1b[31m', names=["b\r\nc"]))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["user"] == 'a\n{"id": 1}\u2028\x1b[31m'


def test_records_of_a_later_version_can_be_read(store: StateStore) -> None:
    log = AuditLog(store, LIMIT, lambda: NOW)
    later = json.loads(line_of(record(1))) | {"a_new_field": 1}
    row = sealed(SERVICE, PREFIX + key_of(record(1)), json.dumps(later).encode() + b"\nwrite")
    store.database.write(SERVICE, Change(puts=[row]))
    assert every(log) == [record(1)]


def test_damaged_records_are_left_out(store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog(store, LIMIT, lambda: NOW)
    for number in range(4):
        log.append(record(number))
    keys = [key for key, _ in audit_rows(store)]
    puts = [(keys[1], b"damaged"), sealed(SERVICE, keys[2], b'{"id": "r2"}\nof another version')]
    store.database.write(SERVICE, Change(puts=puts))
    assert ids(every(log)) == ["r3", "r0"]
    assert caplog.text.count("is damaged and left out") == 2


def test_ended_ids_are_unique_and_expire(store: StateStore) -> None:
    now = [1000.0]
    ended = EndedIds(store, lambda: now[0])
    assert ended.add("a", 1060.0)
    assert not ended.add("a", 1060.0)
    assert ended.add("b", 1120.0)
    assert ended.all() == {"a", "b"}
    now[0] = 1061.0
    assert ended.all() == {"b"}
    assert ended.add("c", 1200.0)
    assert set(json.loads(store.read_document("access/ended").content)) == {"b", "c"}
