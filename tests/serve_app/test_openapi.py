"""The OpenAPI document: what it says is kept, complete, and true of the running service."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serve_app.deployments.ingress import http
from tests.serve_app.running import Service

HERE = Path(__file__).parent
GOLDEN = HERE / "golden" / "openapi.json"
# `make fuzz` gives it minutes; without, so many examples of each operation and the same ones each time.
FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "0"))
EXAMPLES = 15
ENDLESS = {"stream"}  # operations that schemathesis.toml leaves out


def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(http.openapi()))
    del document["info"]["version"]
    return document


def test_the_interface_is_the_one_that_is_kept() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    del golden["info"]["version"]
    assert _document() == golden, "the HTTP interface changed: if that is meant, run `make openapi` and commit"


def test_every_reference_leads_somewhere_and_errors_are_problems() -> None:
    document = _document()
    schemas = document["components"]["schemas"]
    assert set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document))) <= schemas.keys()
    assert "HTTPValidationError" not in schemas
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["description"], path
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"], (path, status)


@pytest.mark.ray
@pytest.mark.timeout(180)
def test_the_service_has_the_same_document_and_accepts_its_example(service: Service) -> None:
    served = service.http.get("/openapi.json").json()
    del served["info"]["version"]
    assert served == _document()
    example = served["components"]["schemas"]["SnapshotDocument"]["examples"][0]
    response = service.http.post("/v1/meshes/example/snapshots", json=example)
    assert response.status_code == 200, response.text
    assert service.http.delete("/v1/meshes/example").status_code == 204


@pytest.mark.ray
@pytest.mark.timeout(180 + 2 * FUZZ_SECONDS)
def test_requests_made_up_from_it_find_nothing(service: Service, tmp_path: Path) -> None:
    """No 5xx, nothing undocumented, nothing accepted that the schema forbids, and the reverse."""
    effort = [f"--max-time={FUZZ_SECONDS}"] if FUZZ_SECONDS else [f"--max-examples={EXAMPLES}", "--seed=1"]
    command = [str(Path(sys.executable).with_name("schemathesis")), f"--config-file={HERE / 'schemathesis.toml'}"]
    command += ["run", f"{service.url}/openapi.json", "--continue-on-failure", "--no-color", *effort]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested is not None, done.stdout[-2_000:]
    operations = sum(len(methods) for methods in _document()["paths"].values())
    assert int(tested[1]) == operations - len(ENDLESS)
