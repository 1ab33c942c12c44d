"""The OpenAPI document: it is stored, complete, and correct for the running service."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serve_app.deployments.http.ingress import http
from tests.serve_app.running import Service

HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "golden" / "openapi.json"
# `make fuzz` gives it minutes. Otherwise it tries this number of examples of each operation, the same every time.
# Without a number, as in `make test`, it tries two, and leaves out what takes minutes: systematic requests and large
# bodies.
FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "0"))
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
LEFT_OUT = {"stream", "connect"}  # operations that schemathesis.toml leaves out
LARGE = {"push", "baseline", "score"}  # their bodies have dozens of names of all alphabets


def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(http.openapi()))
    del document["info"]["version"]
    return document


def test_the_interface_is_the_stored_one() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    del golden["info"]["version"]
    assert _document() == golden, "the HTTP interface changed: if this is intended, run `make openapi` and commit"


def test_every_reference_resolves_and_errors_are_problems() -> None:
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
@pytest.mark.timeout(900 + 2 * FUZZ_SECONDS)
def test_generated_requests_find_no_difference_to_the_document(service: Service, tmp_path: Path) -> None:
    """There is no 5xx and no undocumented answer. The service accepts exactly what the schema allows."""
    left_out = set() if FUZZ_SECONDS or EXAMPLES else LARGE
    effort = [f"--exclude-operation-id={name}" for name in sorted(left_out)]
    if FUZZ_SECONDS:
        effort.append(f"--max-time={FUZZ_SECONDS}")
    else:  # few examples never lead from one operation to another, so the stateful phase waits for `make fuzz`
        phases = "examples,fuzzing" if left_out else "examples,coverage,fuzzing"
        effort += [f"--max-examples={EXAMPLES or 2}", "--seed=1", f"--phases={phases}"]
    command = [str(Path(sys.executable).with_name("schemathesis")), f"--config-file={HERE / 'schemathesis.toml'}"]
    command += ["run", f"{service.url}/openapi.json", "--continue-on-failure", "--no-color", *effort]
    command.append("--suppress-health-check=too_slow")  # making up names of all alphabets is
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested is not None, done.stdout[-2_000:]
    operations = sum(len(methods) for methods in _document()["paths"].values())
    assert int(tested[1]) == operations - len(LEFT_OUT | left_out)
