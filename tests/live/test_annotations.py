"""Our query reads annotations from metrics of kube-state-metrics; Prometheus itself evaluates it."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from serve_app.collect.prometheus.kubernetes import ANNOTATIONS
from tests.live.programs import needs
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.live, needs("promtool")]
MUTED, LOUD = 'annotation_tagae_io_mute="being moved: \\"soon\\""', 'annotation_tagae_io_sensitivity="high"'
ANNOTATED_WORKLOADS = (
    f'kube_deployment_annotations{{namespace="shop",deployment="cart-v1",instance="a",{MUTED},{LOUD}}}',
    f'kube_deployment_annotations{{namespace="shop",deployment="cart-v1",instance="b",{MUTED},{LOUD}}}',
    f'kube_statefulset_annotations{{namespace="shop",statefulset="store",{LOUD}}}',
    f'kube_daemonset_annotations{{namespace="infra",daemonset="agent",{MUTED}}}',
    'kube_deployment_annotations{namespace="shop",deployment="web"}',
    'kube_deployment_annotations{namespace="shop",deployment="pay",annotation_team_io_mute="not ours"}',
)
WANTED = (
    'namespace="shop",workload="cart-v1",annotation="mute",value="being moved: \\"soon\\""',
    'namespace="shop",workload="cart-v1",annotation="sensitivity",value="high"',
    'namespace="shop",workload="store",annotation="sensitivity",value="high"',
    'namespace="infra",workload="agent",annotation="mute",value="being moved: \\"soon\\""',
)


def test_annotations_become_names_and_values_by_workload(tmp_path: Path) -> None:
    test = {
        "interval": "15s",
        "input_series": [{"series": series, "values": "1x10"} for series in ANNOTATED_WORKLOADS],
        "promql_expr_test": [
            {
                "expr": ANNOTATIONS["annotations"].at(60.0),
                "eval_time": "1m",
                "exp_samples": [{"labels": f"{{{labels}}}", "value": 1} for labels in WANTED],
            }
        ],
    }
    file = tmp_path / "annotations.test.yaml"
    file.write_bytes(msgspec.json.encode({"tests": [test]}))  # JSON is YAML
    done = subprocess.run(
        ["promtool", "test", "rules", file], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
