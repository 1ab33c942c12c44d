"""What is left of a body with a mistake that must not cost the verdict."""

from dataclasses import replace

from model.snapshot import PlannedChange
from serve_app.api.codec import unpack_snapshot
from serve_app.deployments.http.bodies import SnapshotBody
from tests.builders import mesh_of

DEPLOY = PlannedChange("deploy", "shop/cart", "v2")
SNAPSHOT = mesh_of(["shop/web", "shop/cart"])


def test_a_change_of_no_service_is_left_out_and_named() -> None:
    body = SnapshotBody.from_snapshot(
        replace(SNAPSHOT, changes=(PlannedChange("deploy", "cart"), DEPLOY, PlannedChange("a", "é")))
    )
    assert unpack_snapshot(body.packed).changes == (DEPLOY,)
    assert body.headers == {
        "tagae-left-out": "change of 'cart': expected namespace/name; change of '\\xe9': expected namespace/name"
    }


def test_a_body_without_mistakes_has_no_header() -> None:
    body = SnapshotBody.from_snapshot(replace(SNAPSHOT, changes=(DEPLOY,)))
    assert (unpack_snapshot(body.packed).changes, body.headers) == ((DEPLOY,), {})
