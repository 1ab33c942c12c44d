"""The sidecar's messages: generated from their .proto, with the fields and checks of the HTTP documents."""

import json
import types
from pathlib import Path
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_tools import protoc
from pydantic import BaseModel

from model.snapshot import PlannedChange, Signal, SignalKind
from model.verdict import (
    Impact,
    IncidentKind,
    LimitForecast,
    NearbyChange,
    Status,
    Suspect,
    Watched,
)
from serve_app.api.codec import decode_snapshot, encode_verdict
from serve_app.api.schemas.problem import problem
from serve_app.api.schemas.snapshot import SnapshotDocument
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.errors import ANSWERS, UNEXPECTED, InvalidDocument
from serve_app.sidecar.generated import verdicts_pb2
from serve_app.sidecar.generated.verdicts_pb2 import Call, Metrics, Service, Signals, Snapshot
from serve_app.sidecar.service import STATUS, snapshot_document, verdict_message
from tests.builders import START, incident, reason, verdict

ROOT = Path(__file__).parents[3]
PROTO = "serve_app/sidecar/verdicts.proto"
FOLDER = "serve_app/sidecar/generated"
GENERATED = [f"{FOLDER}/verdicts_{name}" for name in ("pb2.py", "pb2.pyi", "pb2_grpc.py")]
AT = Timestamp(seconds=1_772_334_720)
CART = Service(namespace="shop", name="cart")


def test_the_generated_code_matches_the_proto(tmp_path: Path) -> None:
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    known = Path(protoc.__file__).with_name("_proto")  # types of protobuf, such as Timestamp
    assert (
        protoc.main(
            ["protoc", f"-I{FOLDER}={(ROOT / PROTO).parent}", f"-I{known}", *outputs, f"{FOLDER}/verdicts.proto"]
        )
        == 0
    )
    for name in GENERATED:
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), "run: make proto"


def document_fields(document: Any) -> dict[str, tuple[Any, bool]]:
    """Return the fields of a document: the type of each, and whether it may have no value."""
    if isinstance(document, type) and issubclass(document, BaseModel):
        annotations = {name: field.annotation for name, field in document.model_fields.items()}
    else:
        annotations = document.__annotations__
    return {name: _unwrapped(annotation) for name, annotation in annotations.items()}


def _unwrapped(annotation: Any, missing: bool = False) -> tuple[Any, bool]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Annotated, list, NotRequired):
        return _unwrapped(inner[0], missing)
    if origin in (Union, types.UnionType):
        (kept,) = [one for one in inner if one is not type(None)]
        return _unwrapped(kept, True)
    return annotation, missing


def differences(message: Descriptor, document: Any, place: str = "") -> list[str]:
    """Return fields that only one has, or that may lack a value in only one."""
    fields = document_fields(document)
    found = [f"{place}/{name}" for name in set(message.fields_by_name) ^ (set(fields) - {"version"})]
    for field in (field for field in message.fields if field.name in fields):
        holds, missing = fields[field.name]
        if field.message_type is not None and field.message_type.full_name.startswith("tagae."):
            found += differences(field.message_type, holds, f"{place}/{field.name}")
        elif missing and not field.has_presence:
            found.append(f"{place}/{field.name}: null there, and never absent here")
        elif isinstance(holds, type) and issubclass(holds, str) != (field.type == FieldDescriptor.TYPE_STRING):
            found.append(f"{place}/{field.name}: {holds} there")
    return found


def test_the_messages_are_the_documents() -> None:
    messages = verdicts_pb2.DESCRIPTOR.message_types_by_name
    assert differences(messages["Verdict"], VerdictDocument) == []
    assert differences(messages["Snapshot"], SnapshotDocument) == []
    assert differences(messages["Suspect"], VerdictDocument) != []  # differences are found


def test_a_verdict_arrives_whole() -> None:
    reasons = (
        reason("p99_latency", 1.2, 0.08, source="shop/web", destination="shop/cart", load=1.5),
        reason("vanished", float("nan"), 3.0),
        reason("memory_utilization", 0.6, 0.4, forecast=LimitForecast(2400.0, 1500.0, float("inf"))),
    )
    suspects = (Suspect("shop/cart", 0.7, reasons, (reason("sent_calls", 540.0, 300.0),)),)
    slow = incident(
        "shop/web",
        suspects=suspects,
        changes=(NearbyChange(PlannedChange("deploy", "shop/cart", "v1.4.2"), START),),
        suspects_at=START,
        kind=IncidentKind.SLOW,
        impact=Impact(1, 0.12),
        scope="shop/*",
    )
    whole = verdict(
        slow,
        status=Status.PARTIAL,
        suspects=suspects,
        coverage=0.5,
        missing_parts=(3, 1),
        model_digest="8ceb",
        watching=(Watched("shop/tax", 4.9, 5.8, START, 1, 3, reasons[:1]),),
        lost=("20260301T011200Z-2a",),
    )
    document = encode_verdict(whole)
    came = json_format.MessageToDict(
        verdict_message(document.model_dump_json().encode()),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    assert came == json.loads(document.model_dump_json(exclude_none=True))
    assert len(came["incidents"][0]["suspects"][0]["reasons"]) == 3
    assert (came["incidents"][0]["scope"], came["lost"]) == ("shop/*", ["20260301T011200Z-2a"])
    assert came["watching"][0]["text"] == "alerts after 2 more snapshots like this"
    assert came["incidents"][0]["headline"].startswith("shop/cart has been slow for shop/web since ")


def test_signals_of_a_snapshot_arrive() -> None:
    cart = Service(namespace="shop", name="cart", signals=Signals(oom_kills=2, queue_depth=0))
    search = Service(namespace="shop", name="search")
    snapshot = decode_snapshot(snapshot_document(Snapshot(observed_at=AT, services=[cart, search])))
    assert snapshot.signals == (
        Signal(SignalKind.OOM_KILLS, "shop/cart", 2.0),
        Signal(SignalKind.QUEUE_DEPTH, "shop/cart", 0.0),
    )


def test_unknown_values_are_absent() -> None:
    warming = verdict(status=Status.WARMING_UP, threshold=float("inf"))
    message = verdict_message(encode_verdict(warming).model_dump_json().encode())
    assert not message.HasField("threshold")
    assert message.status == "warming_up"


@pytest.mark.parametrize(
    ("message", "document", "pointer"),
    [
        (Snapshot(services=[CART]), {"services": ["cart"]}, "/observed_at"),
        (Snapshot(observed_at=AT), {"services": []}, "/services"),
        (Snapshot(observed_at=AT, services=[CART, CART]), {"services": ["cart", "cart"]}, "/services/1"),
        (
            Snapshot(observed_at=AT, services=[CART], calls=[Call(source="shop/cart", destination="shop/cart")]),
            {"services": ["cart"], "calls": [{"source": "shop/cart", "destination": "shop/cart"}]},
            "/calls/0/requests_per_second",
        ),
        (
            Snapshot(
                observed_at=AT,
                services=[CART],
                calls=[Call(source="shop/web", destination="shop/cart", requests_per_second=1)],
            ),
            {
                "services": ["cart"],
                "calls": [{"source": "shop/web", "destination": "shop/cart", "requests_per_second": 1}],
            },
            "/calls/0/source",
        ),
    ],
)
def test_a_bad_snapshot_has_the_same_problem_as_over_http(
    message: Snapshot, document: dict[str, Any], pointer: str
) -> None:
    document["services"] = [{"namespace": "shop", "name": name} for name in document["services"]]
    if message.HasField("observed_at"):
        document["observed_at"] = AT.ToJsonString()
    refusals = []
    for body in (snapshot_document(message), json.dumps(document).encode()):
        with pytest.raises(InvalidDocument) as caught:
            decode_snapshot(body)
        refusals.append(problem(caught.value))
    assert refusals[0] == refusals[1]
    assert refusals[0].pointer == pointer


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Snapshot(observed_at=Timestamp(seconds=10**15), services=[CART]), "years 1 and 9999"),
        (
            Snapshot(
                observed_at=AT, services=[Service(namespace="s", name="a", metrics=Metrics(p50_latency=float("nan")))]
            ),
            "NaN",
        ),
    ],
)
def test_values_that_json_lacks_are_refused(message: Snapshot, words: str) -> None:
    with pytest.raises(InvalidDocument, match=words):
        decode_snapshot(snapshot_document(message))


def test_every_problem_has_a_grpc_status() -> None:
    assert {row.status for row in (*ANSWERS.values(), UNEXPECTED)} <= STATUS.keys()
