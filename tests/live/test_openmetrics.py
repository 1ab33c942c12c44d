"""Snapshots as OpenMetrics text: every line of a small one, and the size of a large one."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from model.snapshot import MeshSnapshot
from tests.live.openmetrics import write
from tests.live.series import Export

AT = datetime(2026, 3, 1, tzinfo=UTC)
LINE = re.compile(r'^(\w+)\{((?:\w+="[^"]*",?)+)\} (\d+\.\d{6}) (\d+\.\d{3})$')


def snapshot(at: datetime, rate: float = 10.0, p50: float = 0.1) -> MeshSnapshot:
    nodes = np.full((2, 7), np.nan)
    nodes[0, :4], nodes[1, :4] = (rate, 0.2, p50, 0.4), (rate / 2, 0.0, 0.01, 0.02)
    nodes[0, 6] = 3.0
    return MeshSnapshot.create(
        node_ids=["shop/web", "shop/cart"],
        edge_index=[[0], [1]],
        node_features=nodes,
        edge_features=[[rate / 2, 0.5, 0.01, 0.02]],
        observed_at=at,
    )


def samples(file: Path) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """``(time, value)`` by metric and labels."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    *lines, last = file.read_text().splitlines()
    assert last == "# EOF"
    for line in lines:
        if not line.startswith("# TYPE "):
            matched = LINE.match(line)
            assert matched, line
            found.setdefault((matched[1], matched[2]), []).append((float(matched[4]), float(matched[3])))
    return found


def test_counters_grow_at_the_rates_of_the_snapshot(tmp_path: Path) -> None:
    file = tmp_path / "text"
    count = write([snapshot(AT), snapshot(AT + timedelta(seconds=10), rate=20)], file, Export(10.0, 1, (100.0, 400.0)))
    found = samples(file)
    assert count == sum(len(series) for series in found.values())
    web = (
        'reporter="destination",destination_workload_namespace="shop",destination_workload="web-v1",'
        'destination_service_namespace="shop",destination_service_name="web"'
    )
    t = AT.timestamp()
    for code, counts in (("200", [0, 80, 240]), ("503", [0, 20, 60])):
        times, values = zip(*found["istio_requests_total", f'{web},response_code="{code}"'], strict=True)
        assert times == (t - 10, t, t + 10)
        assert values == pytest.approx(counts, abs=1e-4)
    buckets = "istio_request_duration_milliseconds_bucket"
    for le, share in (("100", 0.5), ("400", 0.99), ("+Inf", 1.0)):
        cumulative = [value for _, value in found[buckets, f'{web},le="{le}"']]
        assert cumulative == pytest.approx([0, 100 * share, 300 * share], abs=1e-4)
    in_flight = found["istio_request_duration_milliseconds_sum", web]
    assert [value for _, value in in_flight] == [0, 30_000, 60_000]
    assert {
        labels for _, labels in found if 'reporter="source"' in labels and 'source_canonical_service="web"' in labels
    }


def test_unobserved_values_are_not_counted(tmp_path: Path) -> None:
    file = tmp_path / "text"
    seen = [snapshot(AT + timedelta(seconds=10 * i), p50=p50) for i, p50 in enumerate([0.1, np.nan, 0.1])]
    write(seen, file, Export(10.0, 2, (100.0,)))
    of_web = [
        series for (name, labels), series in samples(file).items() if name.endswith("_count") and '"web"' in labels
    ]
    t = AT.timestamp()
    assert [at - t for at, _ in of_web[0]] == [-10, -5, 0, 10, 15, 20]
    assert [value for _, value in of_web[0]] == [0, 50, 100, 100, 150, 200]


def test_snapshots_at_uneven_times_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="10 s apart, got 30 s"):
        write([snapshot(AT), snapshot(AT + timedelta(seconds=30))], tmp_path / "text", Export(10.0))
    with pytest.raises(ValueError, match="at least one"):
        write([], tmp_path / "text")
