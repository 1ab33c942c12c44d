"""Write the figures of benchmarks/results into README and docs, between their markers.

python -m benchmarks.figures
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.ablation.variants import FULL, VARIANTS
from benchmarks.generalization.generators import OTHER
from benchmarks.generalize import LEFT_OUT, SHIPPED_NAME
from benchmarks.pictures import draw_speed, draw_throughput
from lab.comparison.cases import EVEN, ODD
from lab.comparison.digest import SHORT, detector_digest
from lab.comparison.plan import LOUD, OURS
from serve_app.settings.scorer import ScorerSettings

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]


def rows(name: str) -> list[dict[str, Any]]:
    """Lines of one result file."""
    return [json.loads(line) for line in (ROOT / "benchmarks" / "results" / f"{name}.jsonl").read_text().splitlines()]


def table(header: str, body: list[str]) -> str:
    """Markdown."""
    return "\n".join([header, "|".join(["", *["---"] * (header.count("|") - 1), ""]), *body])


def numbers() -> str:
    """The tables of speed, with the machine that they were measured on."""
    pipeline, serve = rows("pipeline"), _pushes()
    about = pipeline[0]
    in_process = table(
        "| services / calls | snapshot to verdict p50 | p99 | network alone p50 |",
        [
            f"| {r['services']:,} / {r['calls']:,} | {r['total_p50_ms']} ms | {r['total_p99_ms']} ms "
            f"| {r['score_p50_ms']} ms |"
            for r in pipeline
        ],
    )
    over_http = table(
        "| services / calls | body | default mode p50 / p99 | empty application p50 | throughput mode p50 / p99 "
        "| empty application p50 |",
        [_http_row(n, wire, serve) for n in sorted({r["services"] for r in serve}) for wire in ("json", "arrow")],
    )
    above = table(
        "| services / calls | body | default mode | decoding | throughput mode | decoding |",
        [_above_row(n, wire, serve) for n in sorted({r["services"] for r in serve}) for wire in ("json", "arrow")],
    )
    return (
        f"Measured on {about['cores']} shared cores without a GPU, with tuned glibc. The process has "
        f"{about['threads']} threads, a replica {serve[0]['threads']}. The backend of the ops is "
        f"`{about['backend']}`, with torch {about['torch']}. `make bench` measures again.\n\n"
        f"In process:\n\n{in_process}\n\n"
        "Over HTTP, from POST to verdict, with one client. An empty application with the same hops is the baseline. "
        f"Throughput mode is `RAY_SERVE_THROUGHPUT_OPTIMIZED=1`:\n\n{over_http}\n\n"
        "The time of a push above the empty application, and the part of it that decodes the body. Both are multiples "
        "of the time of the pipeline alone in the same run:\n\n"
        f"{above}\n\n"
        f"{_decoding()}{collect()}"
    )


def speed() -> str:
    """The short table for the README: in process, and over HTTP if there is a result."""
    pipeline = rows("pipeline")
    pushed = {(r["services"], r["calls"]): r for r in _pushes() if (r["format"], r["mode"]) == ("json", "default")}
    return table(
        f"| services / calls; {pipeline[0]['cores']} shared cores, no GPU | snapshot to verdict, p50 / p99 "
        "| over HTTP (JSON), p50 / p99 |",
        [_speed_row(r, pushed.get((r["services"], r["calls"]))) for r in pipeline],
    )


def _speed_row(row: Row, pushed: Row | None) -> str:
    over_http = f"{pushed['push_p50_ms']:.0f} / {pushed['push_p99_ms']:.0f} ms" if pushed else "–"
    in_process = f"{row['total_p50_ms']:.0f} / {row['total_p99_ms']:.0f} ms"
    return f"| {row['services']:,} / {row['calls']:,} | {in_process} | {over_http} |"


def stages() -> str:
    """CPU time and instructions of a snapshot by stage, for each size."""
    found = rows("stages")
    sizes = list(dict.fromkeys((r["services"], r["calls"]) for r in found))
    cell = {(r["services"], r["stage"]): f"{r['cpu_ms']:.2f}, {_millions(r['instructions'])}" for r in found}
    total = {
        n: f"{sum(r['cpu_ms'] for r in found if r['services'] == n):.1f}, "
        + _millions(sum(r["instructions"] or 0 for r in found if r["services"] == n))
        for n, _ in sizes
    }
    body = [
        f"| {stage} | " + " | ".join(cell[n, stage] for n, _ in sizes) + " |"
        for stage in dict.fromkeys(r["stage"] for r in found)
    ]
    body.append("| all | " + " | ".join(total[n] for n, _ in sizes) + " |")
    return (
        "CPU time of each stage of a snapshot in process, ms, and its instructions, millions, counted by callgrind "
        "with AVX2 (`python -m benchmarks.bench_stages`):\n\n"
        + table("| stage | " + " | ".join(f"{n:,} / {calls:,}" for n, calls in sizes) + " |", body)
    )


def _millions(count: int | None) -> str:
    return f"{count / 1e6:.1f}" if count else "–"


def floors() -> str:
    """CPU time of a snapshot before and after the newest work on it, in ms and in floors."""
    body = [
        f"| {r['services']:,} / {r['calls']:,} | {r['before_ms']:.2f} → {r['after_ms']:.2f} ms | {r['ratio']:.2f} "
        f"| {r['floor_ms']:.2f} ms | {r['before_floors']:.1f} → {r['after_floors']:.1f} |"
        for r in rows("floors")
    ]
    header = "| services / calls | CPU time, before → after | ratio | floor | floors, before → after |"
    return (
        "One thread, medians of alternating processes "
        f"(`python benchmarks/bench_pipeline.py --against FOLDER`, {rows('floors')[0]['rounds']} rounds, with a "
        "checkout of the version before in the folder). A floor is the time of the network's multiply-adds at the "
        f"speed of the fastest product of matrices in the same run:\n\n{table(header, body)}"
    )


def memory() -> str:
    """Resident memory and CPU of one process by size of the mesh, and over ten thousand snapshots."""
    kept = rows("memory")
    body = [
        f"| {r['services']:,} / {r['calls']:,} | {r['resident_ready_mib']} MiB | {r['resident_end_mib']} MiB "
        f"| {r['push_cpu_ms']:.0f} ms |"
        for r in rows("sidecar")
    ]
    header = "| services / calls | resident memory, ready | after 130 snapshots | CPU time per pushed snapshot |"
    early = next(r for r in kept if r["snapshots"] == 500)
    return (
        f"One process (`python benchmarks/bench_sidecar.py`):\n\n{table(header, body)}\n\n"
        f"A session with {kept[-1]['services']} services takes {early['resident'] / 2**20:.0f} MiB after 500 snapshots "
        f"and {kept[-1]['resident'] / 2**20:.0f} MiB after {kept[-1]['snapshots']:,}. Its files then take "
        f"{kept[-1]['files'] / 2**20:.0f} MiB (`python benchmarks/bench_memory.py`)."
    )


def start() -> str:
    """Time until a service is ready, and memory of its processes at rest, beside an empty application."""
    found = rows("start")
    contenders = list(dict.fromkeys(r["contender"] for r in found))
    starts = {name: [r for r in found if r["contender"] == name and "seconds" in r] for name in contenders}
    empty = median(r["cpu"] for r in starts[contenders[-1]])
    lines = [
        f"| {name} | {(cpu := median(r['cpu'] for r in mine)):.1f} s | {cpu / empty:.1f} "
        f"| {min(r['seconds'] for r in mine):.0f} s | {median(r['pss'] for r in mine) / 2**20:,.0f} MiB |"
        for name, mine in starts.items()
    ]
    ours = sorted((r for r in found if "role" in r and r["contender"] == contenders[0]), key=lambda r: -r["pss"])
    processes = [
        f"| {r['role']} | {r['processes']} | {r['pss'] / 2**20:.0f} MiB | {r['uss'] / 2**20:.0f} MiB |" for r in ours
    ]
    return (
        f"Medians of {len(starts[contenders[0]])} starts in turn on {found[0]['cores']} shared cores; other programs "
        "used them too, so compare CPU; time is from the fastest start. Ready: it answers over HTTP. "
        f"Then memory at rest, with one mesh of {found[0]['services']} services, as the proportional set size: "
        "processes divide the pages that they share (`python -m benchmarks.bench_start`):\n\n"
        f"{table('| what | CPU of all processes until ready | ratio | ready after | memory at rest |', lines)}\n\n"
        f"The processes of `tagae serve` at rest:\n\n"
        f"{table('| process | number | memory of each | private |', processes)}"
    )


def store() -> str:
    """A push with the state in a Redis against one with the state in SQLite."""
    header = (
        "| services / calls | `appendfsync` | SQLite, p50 / p90 | Redis, p50 / p90 | ratio of p50 | memory in Redis |"
    )
    body = [
        f"| {r['services']:,} / {r['calls']:,} | {r['appendfsync']} "
        f"| {r['sqlite_p50_ms']:.1f} / {r['sqlite_p90_ms']:.1f} ms "
        f"| {r['redis_p50_ms']:.1f} / {r['redis_p90_ms']:.1f} ms | {r['ratio_p50']:.2f} "
        f"| {r['redis_mib']} MiB |"
        for r in rows("store")
    ]
    return (
        "A push without HTTP, from the packed snapshot to the stored verdict, into both stores in turn on one machine. "
        "The Redis writes an append-only file, and holds the window of 120 snapshots in memory. It is a process of its "
        "own, so the ratio grows if other programs keep the cores busy "
        f"(`python -m benchmarks.bench_store`):\n\n{table(header, body)}"
    )


def history() -> str:
    """What the history of a mesh takes: to read, to store, and of a push."""
    header = (
        "| store | services / calls | days | the mesh with all services | one service | the mesh, rows of ten minutes |"
    )
    ranges, (push,) = rows("history"), [one for one in rows("history") if one["benchmark"] == "history_push"]
    body = [
        f"| {r['store']} | {r['services']:,} / {r['calls']:,} | {r['days']:g} | {r['mesh_seconds']:.2f} s "
        f"| {r['service_seconds']:.2f} s | {r['coarse_mesh_seconds']:.2f} s |"
        for r in ranges
        if r["benchmark"] == "history"
    ]
    size = next(r["minute_bytes_per_service_day"] for r in ranges if r["benchmark"] == "history")
    return (
        "A range of a week in 2,000 steps from rows of one minute, with the highest score of each service, or with the "
        "metrics of one; and in 600 steps from rows of ten minutes. Rows of one minute take "
        f"{size / 1000:.1f} kB for each service and day. With the history, a push of "
        f"{push['services']:,} services takes {push['ratio']:.3f} times the CPU time "
        f"(`python -m benchmarks.bench_history`):\n\n{table(header, body)}"
    )


def page() -> str:
    """Speed of the page in the browser, and its cost for the service."""
    found = {row["measure"]: row for row in rows("page")}
    views = [row for row in rows("page") if row["measure"] == "view"]
    view, cost, push, moved = (found[name] for name in ("view", "cost", "push", "interaction"))
    body = [
        *(
            f"| time from opening the address to the verdict, to the whole mesh; {row['services']:,} services, no cache"
            f" | {row['verdict_s']:.2f} s, {row['graph_s']:.2f} s |"
            for row in views
        ),
        f"| frames per second without a GPU, dragging and zooming {moved['services']:,} services with their calls "
        f"| {moved['drag_fps']:.0f}, {moved['zoom_fps']:.0f} |",
        f"| the same, moving the pointer over {moved['areas']:,} services as areas | {moved['point_fps']:.0f} |",
        f"| size of the page and all its files, compressed | {found['payload']['kilobytes']:.0f} kB |",
        f"| share of one core for {cost['pages']} open pages, a snapshot every 15 s | {cost['of_a_core']:.1%} |",
        f"| p50 and p99 of a push, with the open pages divided by without, {push['pushes']} pushes each "
        f"| {push['p50_ratio']:.2f}, {push['p99_ratio']:.2f} |",
    ]
    return (
        f"In Chromium, on the same {view['cores']} cores as the service (`python -m benchmarks.bench_page`):\n\n"
        f"{table('| measure | value |', body)}"
    )


def overload() -> str:
    """Goodput, latencies and rejections, by clients."""
    body = [
        f"| {row['services']} | {row['format']} | {row['clients']} | {row['goodput_per_second']:.1f} "
        f"| {_ms(row['accepted_p50_seconds'])} / {_ms(row['accepted_p99_seconds'])} | {row['rejections']} "
        f"| {_ms(row['rejected_p95_seconds'])} | {_ms(row['hop_p50_seconds'])} |"
        for row in rows("overload")
    ]
    header = (
        "| services | body | clients | verdicts/s | accepted, p50 / p99 | rejections | rejected, p95 "
        "| empty request, p50 |"
    )
    return (
        "Each client has its own mesh, runs in a closed loop, and waits as long as a 429 says. Clients and service "
        "share 2 cores. Verdicts per second are the median of the rounds "
        f"(`python -m benchmarks.bench_overload`):\n\n{table(header, body)}"
    )


MITIGATIONS = {
    "admission": "admission control, instead of none",
    "place": "`scorer.place` `session`, instead of `replicas`",
    "session replicas": "`serve.session_replicas` 2, instead of 1",
    "scoring replicas": "`scorer.num_replicas` 2, instead of 1",
    "batch size": "`scorer.max_batch_size` 8, instead of 1",
    "latency target": "`scorer.latency_target_ms` 35, instead of 1,000",
}


def sla() -> str:
    """The effect of each mitigation on the service level under overload: medians without and with it, and ratios."""
    body = [
        f"| {MITIGATIONS[row['mitigation']]} | {_change(row, 'p95_seconds', _ms)} | {_change(row, 'p99_seconds', _ms)} "
        f"| {_change(row, 'verdicts_per_second', '{:.0f}'.format)} | {_change(row, 'shed', '{:.0f}'.format)} |"
        for row in rows("sla")
    ]
    one = rows("sla")[0]
    header = "| measure | p95 | p99 | verdicts/s | refused with 429 |"
    return (
        f"{one['clients']} clients push as fast as they get answers, and wait as long as a 429 says. Each has a mesh "
        f"of {one['services']} services. Clients and service share 2 cores. Each cell has the median without and "
        "with the measure, and the median of the ratios of with to without, with its range if there are several "
        "rounds. In the last three rows, replicas score "
        f"(`python -m benchmarks.bench_sla`; rounds: {one['rounds']}):\n\n{table(header, body)}"
    )


def _decoding() -> str:
    """The time from a body to a snapshot, beside the pipeline that scores it."""
    body = [
        f"| {row['services']:,} / {row['calls']:,} | {row['json_bytes'] / 1e6:.2f} MB | {row['json_ms']:.1f} ms "
        f"| {row['json_typed_ms']:.1f} ms | {row['arrow_ms']:.1f} ms "
        f"| {row['pipeline_ms']:.1f} ms | {row['json_of_pipeline']:.0%} |"
        for row in rows("decode")
    ]
    return (
        "From the bytes of a body to a checked snapshot, on one thread, and the pipeline that scores this snapshot, in "
        "turn, while other programs used the machine, too (`python benchmarks/bench_decode.py`):\n\n"
        + table(
            "| services / calls | JSON body | JSON | JSON without compiled code | Arrow | pipeline "
            "| JSON, share of the pipeline |",
            body,
        )
    )


def batches() -> str:
    """What a scorer saves with joined parts, and the effect of its batch size under load."""
    joined = [row for row in rows("batches") if row["kind"] == "joined"]
    load = [row for row in rows("batches") if row["kind"] == "load"]
    about, chosen = load[0], ScorerSettings().largest_batch("cpu")
    shared = table(
        "| services / calls | parts | services saved | calls saved | CPU time of separate passes | one pass | joined "
        "| joined to one pass |",
        [
            f"| {row['services']:,} / {row['calls']:,} | {row['parts']} | {row['services_saved']:.0%} "
            f"| {row['calls_saved']:.0%} | {row['separate_cpu_ms']:.1f} ms | {row['one_pass_cpu_ms']:.1f} ms "
            f"| {row['joined_cpu_ms']:.1f} ms | × {row['ratio_to_one_pass']:.2f} |"
            for row in joined
        ],
    )
    sized = table(
        "| `scorer.max_batch_size` | p50 | p99 | on time | CPU time per snapshot |",
        [
            f"| {row['size']}{' (default on a CPU)' if row['size'] == chosen else ''} | {row['p50_ms']} ms "
            f"| {row['p99_ms']} ms | {row['on_time']:.1%} | {row['cpu_ms']} ms |"
            for row in load
        ],
    )
    return (
        "All parts of one snapshot in one batch, on one thread: scored one after another, in one pass, and joined to "
        f"one graph (`python -m benchmarks.bench_batches`):\n\n{shared}\n\n"
        f"{about['meshes']} meshes of {about['services']:,} services push together, every {about['seconds']} s. "
        f"Two replicas score. Clients and service share {about['cores']} cores. On time is an answer within "
        f"{about['target_seconds']:g} s. CPU time is of all processes of the service; {about['rounds']} rounds, in "
        f"turn:\n\n{sized}"
    )


def places() -> str:
    """A push that is scored on replicas against one that is scored in the session."""
    found = {(row["services"], row["place"]): row for row in rows("places")}
    body = []
    for services in sorted({services for services, _ in found}):
        session, replicas = (found[services, place] for place in ("session", "replicas"))
        body.append(
            f"| {services:,} / {session['calls']:,} | {session['snapshots']} "
            f"| {session['push_p50_ms']:,.0f} ms | {replicas['push_p50_ms']:,.0f} ms "
            f"| × {replicas['push_p50_ms'] / session['push_p50_ms']:.2f} "
            f"| {session['score_p50_ms']:,.0f} → {replicas['score_p50_ms']:,.0f} ms "
            f"| {session['combine_p50_ms']:,.0f} → {replicas['combine_p50_ms']:,.0f} ms "
            f"| {session['total_p50_ms']:,.0f} → {replicas['total_p50_ms']:,.0f} ms |"
        )
    one = next(iter(found.values()))
    header = (
        "| services / calls | snapshots | session, p50 | replicas, p50 | ratio | scores of the parts "
        "| verdict from the evidence | all stages |"
    )
    return (
        f"JSON, one client on {one['cores']} shared cores; two services run side by side, and each snapshot goes to "
        "both. The last three columns are session → replicas (`python -m benchmarks.bench_places --services "
        f"{' '.join(str(services) for services in sorted({services for services, _ in found}))}`):\n\n"
        f"{table(header, body)}"
    )


def steering() -> str:
    """What `sla.act` does about each kind of trouble: without it and with it."""
    body = [
        f"| {row['case']} | {_change(row, 'on_time', '{:.0%}'.format)} | {_change(row, 'verdicts', '{:.0%}'.format)} "
        f"| {_change(row, 'missed_seconds', '{:.0f} s'.format)} "
        f"| {_change(row, 'recovery_seconds', '{:.0f} s'.format)} "
        f"| {_violations(row['without'])} → {_violations(row['with'])} |"
        for row in rows("actions")
    ]
    one = rows("actions")[0]
    header = (
        "| trouble | verdict on time | any verdict | p95 above target | first within it for 10 s after | violations |"
    )
    return (
        f"Trouble of {one['trouble_seconds']:.0f} s, without `sla.act` → with it and `sla.least_admission` 0.25, which "
        "is not the default, each with a new service on 2 cores "
        f"(`python -m benchmarks.bench_actions`, which says what each kind of trouble is; rounds: {one['rounds']}). "
        f"Meshes of {one['services']} services push on their own schedule. Shares are of the snapshots that were due:"
        f"\n\n{table(header, body)}"
    )


def _violations(figures: Mapping[str, Any]) -> str:
    """The objectives that were violated, for how long, and why."""
    found = (
        f"{one['objective']} {one['seconds']:.0f} s" + (f" ({one['cause']})" if one["cause"] else "")
        for one in figures["violations"]
    )
    return ", ".join(found) or "none"


def _change(row: Row, what: str, text: Callable[[float], str]) -> str:
    """Return a figure without and with a mitigation, and their ratio if it was measured."""
    change = f"{text(row['without'][what])} → {text(row['with'][what])}"
    if what not in row.get("ratios", {}):
        return change
    least, most = row["ratio_ranges"][what]
    spread = f"; {least:.2f} to {most:.2f}" if row["rounds"] > 1 else ""
    return f"{change} (× {row['ratios'][what]:.2f}{spread})"


def kernels() -> str:
    """A layer beside its contenders, and the network beside the peak of the processor."""
    found = rows("kernels")
    inference = [r for r in found if r["pass"] == "inference"]
    training = {r["nodes"]: r for r in found if r["pass"] != "inference"}
    layers = ("layer", "reference", "pyg", "compiled", "aot", "onnx")
    body = [
        f"| {r['nodes']:,} / {r['edges']:,} | "
        + " | ".join(f"{r[f'{name}_ms']:.2f}" if f"{name}_ms" in r else "–" for name in layers)
        + f" | {training[r['nodes']]['layer_ms']:.1f} | {training[r['nodes']]['pyg_ms']:.1f} |"
        for r in inference
    ]
    header = (
        "| nodes / edges | our layer | its reference | PyG eager | `torch.compile` | AOTInductor | ONNX Runtime "
        "| our layer with backward | PyG with backward |"
    )
    shares = [
        f"| {r['nodes']:,} / {r['edges']:,} | {r['network_ms']:.2f} | {r['peak_share']:.2f} "
        f"| {r['vs_pyg']:.1f} | {r['vs_compiled']:.1f} |"
        for r in inference
    ]
    about = (
        "| services / calls | the network, ms | share of the peak | our layer against PyG eager "
        "| against `torch.compile` |"
    )
    return (
        f"Milliseconds, {inference[0]['threads']} thread, `{inference[0]['backend']}`, torch {inference[0]['torch']}, "
        f"PyG {inference[0]['pyg']}:\n\n{table(header, body)}\n\n{table(about, shares)}"
    )


def sizes() -> str:
    """Losses of networks of other sizes on unseen meshes, mean of the seeds, and the time of a pass."""
    found = rows("sizes")
    body = []
    for size in dict.fromkeys(row["size"] for row in found):
        of_size = [row for row in found if row["size"] == size]
        spreads = " | ".join(
            f"{min(values):.4f} to {max(values):.4f}"
            for name in ("expectation", "structure", "root_cause", "first")
            for values in [[row[name] for row in of_size]]
        )
        body.append(f"| {size} | {of_size[0]['network_ms']:.1f} ms | {spreads} |")
    header = (
        "| hidden / embedding / heads / trajectory | network, 2,000 / 20,000 | loss of expectations | of structure "
        "| of root causes | root cause first |"
    )
    seeds = len({row["seed"] for row in found})
    return f"`python -m benchmarks.bench_sizes`, smallest and largest of {seeds} seeds:\n\n{table(header, body)}"


def slow_clients() -> str:
    """Pushes beside clients that hold connections."""
    [row] = rows("slow_clients")
    push, health = row["push_p99_seconds"], row["health_longest_seconds"]
    return (
        f"Load: {row['slow']} bodies of one byte per second, {row['streams']} streams and {row['idle']} idle "
        f"connections at once. The p99 of a push is {_ms(push['beside'])}, against {_ms(push['alone'])} without them: "
        f"{row['push_p99_ratio']:.2f} times as long. The longest answers of `/healthz` and `/readyz` take "
        f"{_ms(health['/healthz'])} and {_ms(health['/readyz'])} "
        "(`python -m benchmarks.bench_slow_clients`)."
    )


def recovery() -> str:
    """Outages after kills, by the role of the process."""
    *kills, summary = rows("recovery")
    roles = dict.fromkeys(row["role"] for row in kills)
    body = []
    for role in roles:
        of_role = [row for row in kills if row["role"] == role]
        longest, restarted = max(row["outage_seconds"] for row in of_role), any(row["restarted"] for row in of_role)
        body.append(f"| {role} | {len(of_role)} | {longest:.1f} s | {'yes' if restarted else 'no'} |")
    header = "| process killed | times | longest outage | whole service restarted |"
    return (
        f"{summary['kills']} random `kill -9` under load from five meshes: {summary['verdicts']} verdicts, none "
        f"missing, none duplicated, {len(summary['errors'])} errors in the clients "
        f"(`python -m benchmarks.bench_recovery`):\n\n"
        f"{table(header, body)}"
    )


def kills_cluster() -> str:
    """Times without a verdict after random kills on a cluster, and what was lost."""
    *kills, about = rows("kills_cluster")
    body = []
    for role in sorted({row["role"] for row in kills}):
        of_role = [row for row in kills if row["role"] == role]
        began = [row for row in of_role if row["gap_seconds"]]  # others came while an earlier kill still had its effect
        gaps = [row["gap_seconds"] for row in began]
        alone = [row["gap_seconds"] for row in began if row["kills_in_gap"] == 1]
        middle, lone, longest = (
            f"{of(g):.1f} s" if g else "–" for of, g in ((median, gaps), (max, alone), (max, gaps))
        )
        body.append(f"| {role} | {len(of_role)} | {middle} | {lone} | {longest} |")
    header = "| killed | times | time without a verdict, median | longest, no other kill meanwhile | longest |"
    memory = [f"| {role} | {early:,.1f} | {late:,.1f} |" for role, (early, late) in about["memory"].items()]
    return (
        f"{about['kills']} random kills in {about['minutes']:.0f} minutes, while other programs used the same cores "
        f"(`python -m benchmarks.bench_kills_cluster --seed {about['seed']}`): {about['verdicts']:,} snapshots of "
        f"{about['meshes']} pushed meshes and {about['collected']:,} of a collected one were acknowledged. None is "
        f"missing or counted twice, and all verdicts equal a pipeline without a service. {about['unscored']} verdicts "
        f"had no scores, because no scorer answered in time. {about['repeated']} pushes were repeated. "
        f"{about['incidents']} incidents caused {about['events']} events at a webhook: none is missing, and "
        f"{about['events_again']} came again under the same id.\n\n"
        f"{table(header, body)}\n\n"
        "Memory in MiB of the largest process of each kind, as medians over the second sixth and the last sixth of the "
        "time. `redis` is the Redis with Ray's state, `store` is our data in it. `processes` is the number of "
        "processes of Serve.\n\n"
        f"{table('| what | second sixth | last sixth |', memory)}"
    )


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1000 * seconds:.0f} ms"


WAYS = {
    "rules": "recording rules (shipped)",
    "rules_gzip": "recording rules, compressed (`compressed`)",
    "buckets": "histogram buckets, no rules",
}


def collect() -> str:
    """Collecting from a Prometheus, by way; empty if there is no result, because it needs a Prometheus."""
    if not (ROOT / "benchmarks" / "results" / "collect.jsonl").exists():
        return ""
    found = {r["way"]: r for r in rows("collect")}
    about = found["rules"]
    left_out = sum(sum(row["left_out"].values()) for row in found.values())
    body = [
        f"| {title} | {_spread(found[way], 'wall')} | {_spread(found[way], 'cpu')} | {found[way]['samples']:,} "
        f"| {found[way]['megabytes']:.0f} MB |"
        for way, title in WAYS.items()
    ]
    return (
        f"\n\nCollecting one snapshot of {about['services']:,} services and {about['calls']:,} calls "
        f"({about['buckets']} buckets each) from Prometheus {about['prometheus']}, median of {about['polls']} polls "
        f"with the 10th to 90th percentile (`python -m benchmarks.bench_collect`). On the same {about['cores']} cores, "
        f"Prometheus scrapes the mesh and evaluates rules. Before the run, a busy process got {about['own_share']:.0%} "
        f"of one core. Polls left out because scrapes or rules were late: {left_out}.\n\n"
        f"{table('| source | time of a poll | our own CPU time | samples | uncompressed |', body)}"
    )


def _spread(row: Row, what: str) -> str:
    low, middle, high = (row[f"{what}_{figure}_ms"] for figure in ("p10", "p50", "p90"))
    return f"{middle:,.0f} ms ({low:,.0f} to {high:,.0f})"


def _pushes() -> list[Row]:
    """The rows of pushes to an application that scores where it does by default."""
    return [row for row in rows("serve") if row["place"] == "session"]


def _http_row(services: int, wire: str, serve: list[dict[str, Any]]) -> str:
    found = {r["mode"]: r for r in serve if (r["services"], r["format"]) == (services, wire)}
    calls = next(iter(found.values()))["calls"]
    cells = [
        f"{r['push_p50_ms']:.0f} / {r['push_p99_ms']:.0f} ms | {r['noop_p50_ms']:.0f} ms"
        for r in (found["default"], found["throughput"])
    ]
    return f"| {services:,} / {calls:,} | {wire} | {' | '.join(cells)} |"


def _above_row(services: int, wire: str, serve: list[dict[str, Any]]) -> str:
    found = {r["mode"]: r for r in serve if (r["services"], r["format"]) == (services, wire)}
    cells = [
        f"× {r[name] / r['pipeline_p50_ms']:.1f}"
        for r in (found["default"], found["throughput"])
        for name in ("above_noop_p50_ms", "stage_decode_p50_ms")
    ]
    return f"| {services:,} / {found['default']['calls']:,} | {wire} | {' | '.join(cells)} |"


def evaluation_set() -> str:
    """Static rules on the simulated evaluation set."""
    return table(
        "| services | churn | rule | faults | recall (95%) | false alerts per hour | root cause first / in top three |",
        [
            f"| {r['services']:,} | {r['churn']} | {r['rule']} | {r['faults']} "
            f"| {r['recall']:.2f} ({r['recall_low']:.2f} to {r['recall_high']:.2f}) | {r['false_pages_per_hour']:.0f} "
            f"| {r['top_1']:.2f} / {r['top_3']:.2f} |"
            for r in rows("evaluation_set")
        ],
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table of detection.

    Attributes:
        what: text of the first column.
        part, measure: as in the results.
        higher: whether a higher value is better.
        beside, most: another measure shown with it, and its limit for contenders.
        against: the only contender that counts, and its measure.
        ours: which of our detectors the line shows.
        results: name of the file with the results.
        waits: whether the line is shown before ours is measured.
    """

    what: str
    part: str
    measure: str
    higher: bool = True
    beside: str = ""
    most: float = float("inf")
    against: tuple[str, str] | None = None
    ours: str = OURS
    results: str = "detection"
    waits: bool = False


ISSUES, QUIET, SHOP = "petshop, segments", "petshop, normal", "nezha-onlineboutique, stream"
CASES, ODD_CASES = (f"rcaeval-sockshop, {cases} cases, stream" for cases in (EVEN, ODD))
KINDS_OF_CASES = {
    "cpu_hog": "CPU",
    "memory_hog": "memory",
    "disk_stress": "disk",
    "network_delay": "delay",
    "packet_loss": "loss",
}
MESH, LARGE = "simulated, 300 services, located", "simulated, 3,000 services, located"
SILENT, SILENT_LARGE = "simulated, 300 services, normal", "simulated, 3,000 services, normal"
DETECTION = (
    Line("PetShop, 44 issues: root cause ranked first", ISSUES, "top_1"),
    Line("PetShop: root cause in the top three", ISSUES, "top_3"),
    Line("PetShop, latency issues: root cause first", ISSUES, "top_1_latency"),
    Line("PetShop, availability issues: root cause first", ISSUES, "top_1_availability"),
    Line("PetShop, two days of normal traffic: false alarms per day", QUIET, "false_alarms_per_day", higher=False),
    Line("Online Boutique, 24 faults, cold start: recall at 1 false alarm", SHOP, "recall_at_1_false_alarms"),
    Line("Online Boutique: recall at 3 false alarms", SHOP, "recall_at_3_false_alarms"),
    Line("Online Boutique: recall at 6 false alarms", SHOP, "recall_at_6_false_alarms"),
    Line("Online Boutique: AUROC", SHOP, "auroc"),
    Line("Online Boutique: root cause first", SHOP, "top_1"),
    Line("Online Boutique: root cause in the top three", SHOP, "top_3"),
    Line(
        "Online Boutique, default threshold: recall, and share of normal snapshots in alarm",
        SHOP,
        "recall",
        beside="alarm_share",
        most=0.05,
    ),
    Line(
        "Online Boutique: Brier score of the probability, and of the base rate",
        SHOP,
        "brier",
        higher=False,
        beside="brier_of_base_rate",
    ),
    *(
        Line(f"{where}: {what}", part, measure, waits=True)
        for where, part in (
            ("Sock Shop, 62 even cases", CASES),
            ("Sock Shop, 63 odd cases, used for choosing", ODD_CASES),
        )
        for what, measure in (
            ("recall at 1 false alarm", "recall_at_1_false_alarms"),
            ("recall at 3 false alarms", "recall_at_3_false_alarms"),
            ("recall at 6 false alarms", "recall_at_6_false_alarms"),
            ("root cause first", "top_1"),
            ("root cause in the top three", "top_3"),
        )
    ),
    *(
        Line(
            f"Sock Shop, even cases, default threshold{words}: recall, and share of normal snapshots in alarm",
            CASES,
            measure,
            beside="alarm_share",
            most=0.1,
            waits=True,
        )
        for measure, words in (
            ("recall", ""),
            *((f"recall_of_{kind}", f", {words}") for kind, words in KINDS_OF_CASES.items()),
        )
    ),
    *(
        Line(f"Sock Shop, even cases, {words}: recall by notices", CASES, f"notice_recall_of_{kind}")
        for kind, words in KINDS_OF_CASES.items()
    ),
    Line(
        "Simulated, 300 services, high churn, default threshold: recall, and false alerts per hour",
        MESH,
        "recall",
        beside="false_pages_per_hour",
        most=2.0,
    ),
    Line("300 services: recall at 2 false alerts per hour", MESH, "recall_at_2_false_pages_per_hour"),
    Line(
        "300 services, with a budget of 20 false alerts per hour: recall, and false alerts per hour",
        MESH,
        "recall",
        beside="false_pages_per_hour",
        most=20.0,
        ours=LOUD,
    ),
    Line(
        "300 services, faults from 20 sigmas: root cause in the top three of a true alert",
        MESH,
        "top_3_of_true_pages_from_moderate",
    ),
    Line(
        "300 services, faults from 100 sigmas: median delay in snapshots", MESH, "delay_snapshots_gross", higher=False
    ),
    *(
        Line(
            f'300 services: false alerts per hour at the recall of the contender "{rule.replace("_", " ")}"',
            MESH,
            f"false_pages_per_hour_at_recall_of_{rule}",
            higher=False,
            against=(rule.replace("_", " "), "false_pages_per_hour"),
        )
        for rule in ("guarded", "own_limit")
    ),
    Line(
        "300 services, no fault injected: alerts per day, and budgeted alerts per day",
        MESH,
        "fault_free_pages_per_day",
        higher=False,
        beside="promised_pages_per_day",
    ),
    Line(
        "300 services, faults that harm resources only: recall by notices, and false notices per day",
        MESH,
        "notice_recall_of_resource_faults",
        beside="false_notices_per_day",
    ),
    Line(
        "300 services: recall by alerts and notices together, and how many of both are false per hour",
        MESH,
        "recall_with_notices",
        beside="false_pages_and_notices_per_hour",
    ),
    Line("300 services: incidents per fault found; 1 is right", MESH, "incidents_per_found_fault", higher=False),
    *(
        Line(
            f"{size} services, silent telemetry, no fault injected: alerts per day, and per hour of silence",
            part,
            "fault_free_pages_per_day",
            higher=False,
            beside="false_pages_per_hour_of_silence",
        )
        for size, part in (("300", SILENT), ("3,000", SILENT_LARGE))
    ),
    Line(
        "Simulated, 3,000 services, default threshold: recall, and false alerts per hour",
        LARGE,
        "recall",
        beside="false_pages_per_hour",
        most=15.0,
    ),
    Line("3,000 services: recall at 15 false alerts per hour", LARGE, "recall_at_15_false_pages_per_hour"),
)


BRIEF = (
    Line("PetShop (real), 44 issues: root cause in the top three", ISSUES, "top_3"),
    Line("Online Boutique (real), 24 faults, cold start: recall at 3 false alarms", SHOP, "recall_at_3_false_alarms"),
    Line("Online Boutique (real): root cause in the top three", SHOP, "top_3"),
    Line(
        "Sock Shop (real), 62 cases, cold start: recall at 1 false alarm", CASES, "recall_at_1_false_alarms", waits=True
    ),
    Line("Sock Shop (real): recall at 3 false alarms", CASES, "recall_at_3_false_alarms", waits=True),
    Line("Sock Shop (real): recall at 6 false alarms", CASES, "recall_at_6_false_alarms", waits=True),
    Line("Sock Shop (real): root cause ranked first", CASES, "top_1", waits=True),
    Line("Sock Shop (real): root cause in the top three", CASES, "top_3", waits=True),
    Line(
        "simulated, 300 services: recall, and false alerts per hour",
        MESH,
        "recall",
        beside="false_pages_per_hour",
        most=2.0,
    ),
    Line(
        "simulated, 3,000 services: recall, and false alerts per hour",
        LARGE,
        "recall",
        beside="false_pages_per_hour",
        most=15.0,
    ),
    Line(
        "simulator by other people, 300 services, not trained on it: recall at 2 false alerts per hour",
        f"{OTHER}, located",
        "recall_at_2_false_pages_per_hour",
        ours=LEFT_OUT,
        results="generalize",
    ),
    Line(
        "the same, alerts found: root cause in the top three",
        f"{OTHER}, located",
        "top_3_of_true_pages",
        ours=LEFT_OUT,
        results="generalize",
    ),
    Line(
        "simulated, 300 services, no fault injected: alerts per day, and budgeted alerts per day",
        MESH,
        "fault_free_pages_per_day",
        higher=False,
        beside="promised_pages_per_day",
    ),
)


def detection(chosen: tuple[Line, ...] = DETECTION) -> str:
    """Our figures and the strongest contender's, the better one in bold."""
    results = [row for name in dict.fromkeys(line.results for line in chosen) for row in rows(name)]
    found = {(row["part"], row["measure"], row["detector"]): row for row in results}
    lines = [
        _line(line, found)
        for line in chosen
        if (line.part, line.measure, line.ours) in found or (line.waits and _contenders(line, found))
    ]
    return table("| | TAGAE | strongest contender |", lines)


def digest_line() -> str:
    """Which detectors the figures are of: the first digits of their digests, and whether it is this one."""
    found = {str(row.get("digest", "unknown")) for row in rows("detection") if row["detector"] in (OURS, LOUD)}
    shown = ", ".join(sorted(digest[:SHORT] for digest in found))
    if found == {detector_digest()}:
        return f"Figures of detector {shown}."
    some = "Some" if detector_digest() in found else "All"
    return f"Figures of detector {shown}. {some} of them were measured with an earlier version than this one."


def ablations() -> str:
    """Compare all variants with the full detector."""
    results = rows("ablations")
    found = {(row["part"], row["measure"], row["detector"]): row for row in results}
    present = {row["detector"] for row in results}
    names = [name for name in VARIANTS if name in present]
    lines = [
        line
        for line in DETECTION
        if line.against is None and line.ours == OURS and (line.part, line.measure, FULL) in found
    ]
    header = "| | " + " | ".join(VARIANTS[name].title for name in names) + " |"
    return table(header, [_ablation_cells(line, found, names) for line in lines])


def _ablation_cells(line: Line, found: dict[tuple[str, str, str], Row], names: list[str]) -> str:
    cells = []
    for name in names:
        row = found.get((line.part, line.measure, name), {"value": None, "low": None})
        text = _figure(row if name == FULL else row | {"low": None})
        beside = found.get((line.part, line.beside, name))
        cell = text + (f", {beside['value']:.2g}" if beside else "")
        low, high = row.get("full_ahead", (0, 0, 0))[1:]
        cells.append(f"**{cell}**" if low > 0 or high < 0 else cell)
    return f"| {line.what} | {' | '.join(cells)} |"


def _line(line: Line, found: dict[tuple[str, str, str], Row]) -> str:
    def show(detector: str, measure: str = line.measure) -> str:
        beside = found.get((line.part, line.beside, detector))
        row = found.get((line.part, measure, detector), {"value": None, "low": None})
        return _figure(row) + (f", {beside['value']:.2g}" if beside and beside["value"] is not None else "")

    if line.against is not None:
        rule, measure = line.against
        names, cells = [rule], [f"{rule} {show(rule, measure)}"]
    else:
        names, measure = _strongest(line, found), line.measure
        cells = [f"{name} {show(name)}" for name in names] or ["none"]
    values = [found[line.part, measure, name]["value"] for name in names]
    ours = found.get((line.part, line.measure, line.ours), {"value": None})["value"]
    cells = [show(line.ours), *cells]
    if ours is not None and values and values[0] not in (None, ours):
        better = int((values[0] > ours) is line.higher)
        cells[better] = f"**{cells[better]}**"
    return f"| {line.what} | {' | '.join(cells)} |"


def _strongest(line: Line, found: dict[tuple[str, str, str], Row]) -> list[str]:
    """The best contender within the limit of the second measure, if there is one."""
    allowed = _contenders(line, found)
    best: Callable[..., str] = max if line.higher else min
    return [best(allowed, key=lambda name: found[line.part, line.measure, name]["value"])] if allowed else []


def _contenders(line: Line, found: dict[tuple[str, str, str], Row]) -> list[str]:
    """Contenders within the limit of the second measure."""
    names = [
        name
        for part, measure, name in found
        if (part, measure) == (line.part, line.measure) and name not in (OURS, LOUD, *WEIGHTS)
    ]
    return [
        name
        for name in names
        if found[line.part, line.measure, name]["value"] is not None
        and (not line.beside or _is_within(found.get((line.part, line.beside, name)), line.most))
    ]


def _is_within(row: Row | None, most: float) -> bool:
    """Whether a second measure is within its limit; one that a detector does not have is, if there is no limit."""
    value = row["value"] if row else None
    return most == float("inf") if value is None else bool(value <= most)


def _figure(row: Row) -> str:
    if row["value"] is None:
        return "–"
    digits = 2 if row["value"] < 1.5 else 1
    interval = "" if row["low"] is None else f" ({row['low']:.{digits}f} to {row['high']:.{digits}f})"
    return f"{row['value']:.{digits}f}{interval}"


def drift() -> str:
    """How many drifts were reported within a day, and how many reports there were without any."""
    found = rows("drift")
    still = [one for one in found if not one["drift"]]
    weeks = sum(one["days"] / 7 - 1 for one in still)  # in the first one, the own week is not known yet
    # Lines of advice that begin at the same time are one report.
    false = [len({line.partition(" since ")[2] for line in one["advice"]}) for one in still]
    body = []
    lasting = [one for one in found if one["drift"] == "lasting fault"]
    for kind in dict.fromkeys(one["drift"] for one in found if one["drift"] and one not in lasting):
        of_kind = [one for one in found if one["drift"] == kind]
        hours = [one["hours"] for one in of_kind if one["hours"] is not None]
        changed = [one["size"] for one in of_kind]
        after = f"{median(hours):.0f} h" if hours else "–"
        body.append(f"| {kind} | {min(changed):.0%} to {max(changed):.0%} | {len(hours)} of {len(of_kind)} | {after} |")
    header = "| what changes | share of the services or calls | reported within a day | median time |"
    return (
        f"{table(header, body)}\n\nWithout drift: {sum(false)} false {'report' if sum(false) == 1 else 'reports'} in "
        f"{weeks:.0f} weeks, in {sum(map(bool, false))} of {len(still)} meshes. A fault that lasted for a day was "
        f"reported as drift in {sum(one['hours'] is not None for one in lasting)} of {len(lasting)} meshes "
        "(`python -m benchmarks.bench_drift`)."
    )


def reconstruction() -> str:
    """What finds many small deviations at once, at equal numbers of false alerts."""
    names = {"slow_zone": "slow zone", "noisy_hosts": "noisy hosts", "lossy_zone": "lossy zone"}
    shown = ("page", "reconstruction", "displacement", "combined")
    head = "| source | what deviates | events | " + " | ".join(shown) + " | alerts | exceeded | either |"
    body, false, found = [], [], rows("reconstruction")
    for one in found:
        what = names.get(one["kind"], one["kind"]) + (f", {one['size']:.1%}" if one["size"] else "")
        cells = [f"{one[f'{name} at 4/day'][0]:.2f}" for name in shown]
        cells += [f"{one[name][0]:.2f}" for name in ("alerts", "exceeded", "either")]
        body.append(f"| {one['source']} | {what} | {one['events']} | {' | '.join(cells)} |")
        counts = [one[f"false_{name}_per_day"] for name in ("alerts", "exceeded", "either")]
        line = f"{one['source']}: " + ", ".join("–" if value is None else f"{value:.1f}" for value in counts)
        line += f" in {one['calm_days']:.1f} days"
        false += [] if line in false else [line]
    chosen = any(one["seeds"] == "choose" for one in found)
    seeds = " The constants were chosen on these meshes." if chosen else " The constants were chosen on other meshes."
    return (
        f"{table(head, body)}\n\nFalse alerts per day of the last three columns: {'. '.join(false)}.{seeds} "
        f"Command: `python -m benchmarks.bench_reconstruction{' --seeds choose' if chosen else ''}`."
    )


def missing() -> str:
    """What values in place of missing telemetry find, over all kinds of gaps."""
    found, body = [one for one in rows("missing") if one["missing"] != "nothing"], []
    for group in ("simulators", "recordings"):
        of_group = [one for one in found if ("simulator" in one["source"]) == (group == "simulators")]
        for filling in dict.fromkeys(one["filling"] for one in of_group):
            lines = [one for one in of_group if one["filling"] == filling]
            faults = sum(one["faults"] for one in lines)
            names = ("found", "found_at_equal", "culprit_first", "alerting")
            shares = [sum((one[name][0] or 0) * one["faults"] for one in lines) / faults for name in names]
            false, days = (sum(one[name] for one in lines) for name in ("false_alerts", "normal_days"))
            apart = [sum(one[name] for one in lines) for name in ("only_filling", "only_mask")]
            body.append(
                f"| {group} | {filling} | {faults} | {' | '.join(f'{one:.2f}' for one in shares)} "
                f"| {false} in {days:.1f} days | {apart[0]} / {apart[1]} |"
            )
    header = (
        "| source | in place of a missing value | faults in gaps | found | at equal false alerts | culprit first "
        "| alert is open | false alerts | found only with it / only with the mask |"
    )
    return table(header, body)


def caches() -> str:
    """What caches of the network's passes save, and the errors that they add."""
    changed, hubs = ([one for one in rows("caches") if one["cache"] == name] for name in ("changed part", "hubs"))
    of_changes = [
        f"| {one['source']} | {one['services']:,} / {one['calls']:,} | {one['tolerance']:g} "
        f"| {one['changed_services']:.0%} | {one['computed_services']:.0%} | {one['pass_ms']} ms "
        f"| {one['cached_ms']} ms | {one['error_p99']:.2f} / {one['error_max']:.1f} |"
        for one in changed
    ]
    of_hubs = [
        f"| {one['source']} | {one['hubs']} | {one['reads_of_hubs']:.0%} | {one['age']} | {one['pass_ms']} ms "
        f"| {one['cached_ms']} ms | {_or_dash(one['error_p99'])} / {_or_dash(one['error_max'])} |"
        for one in hubs
    ]
    return "\n\n".join(
        (
            table(
                "| source | services / calls | tolerance | changed services | to be computed | pass | with the cache "
                "| error p99 / largest, sigmas |",
                of_changes,
            ),
            table(
                "| source | hubs | neighbours that are hubs | age, snapshots | pass | without the work of hubs "
                "| error of root-cause logits, p99 / largest |",
                of_hubs,
            ),
        )
    )


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def online() -> str:
    """What it pays to learn from one mesh, at equal numbers of false alerts."""
    found = rows("online")
    header = (
        "| meshes | learned | NLL, nats | NLL of tails, 1/1000 nats | found | culprit first | alerts found "
        "| false alerts per week |"
    )
    body = [
        f"| {one['source']}: {one['meshes']}, {one['faults']} faults | {one['variant']} | {one['nll']:.4f} "
        f"| {one['tail_nll']:.2f} | {_shares(one['found at 4/day'])} | {_shares(one['culprit first at 4/day'])} "
        f"| {one['alerts found'][0]:.2f} | {one['false alerts per week']:.1f} |"
        for one in found
    ]
    days = {one["source"]: one["calm_days"] for one in found}
    seconds = max(one["fit_seconds"] for one in found)
    return (
        f"{table(header, body)}\n\nCalm days: {', '.join(f'{name} {value:.1f}' for name, value in days.items())}. "
        f"Rank {found[0]['rank']}; a fit of the heads takes up to {seconds:.1f} s of CPU time. Command: "
        f"`python -m benchmarks.bench_online --seeds {found[0]['seeds']} --meshes {found[0]['meshes']}`."
    )


def _shares(values: list[float | None]) -> str:
    if None in values:
        return "–"
    value, low, high = values
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def exports() -> str:
    """CPU time of a pass and differences of the exported network, beside ours."""
    found = rows("exports")
    names = {"network": "the network", "pt2": ".pt2", "onnx": f".onnx, opset {found[0]['opset']}"}
    by_size: dict[tuple[int, int], dict[str, Row]] = {}
    for row in found:
        by_size.setdefault((row["services"], row["calls"]), {})[row["form"]] = row
    body = [
        f"| {services:,} / {calls:,} | "
        + " | ".join(f"{of[form]['pass_cpu_ms']:.1f} ms" for form in names)
        + f" | {max(of[form]['difference'] for form in names):.0e} |"
        for (services, calls), of in by_size.items()
    ]
    sizes_of = ", ".join(f"{names[r['form']]} {r['file_bytes'] / 2**10:.0f} KiB" for r in found[:3] if r["file_bytes"])
    about = f"torch {found[0]['torch']}, ONNX Runtime {found[0]['onnxruntime']}, ops `{found[0]['backend']}`"
    header = f"| services / calls | {' | '.join(names.values())} | largest difference |"
    return f"{table(header, body)}\n\nFiles: {sizes_of}. {about}."


def networks() -> str:
    """Another network beside ours: faults found, culprits, false alerts, size and speed."""
    found = rows("networks")
    header = (
        "| network | faults found, of " + f"{found[0]['faults']} | culprit first | false alerts a day | parameters "
        "| pass over 200 services, CPU time |"
    )
    body = [
        f"| {r['network'].rpartition(':')[2]} | {_with_interval(r['found'])} | {_with_interval(r['culprit_first'])} "
        f"| {r['false_alerts_per_day']:.1f} | {r['parameters']:,} | {r['pass_cpu_ms']:.1f} ms |"
        for r in found
    ]
    about = found[0]
    return (
        f"{table(header, body)}\n\nTraining of the first two: {about['meshes']} meshes of {about['snapshots']} "
        f"snapshots, {about['steps']} steps. Intervals are 95%. False alerts are from {about['normal_days']:.1f} "
        "simulated days."
    )


def _with_interval(values: list[float | None]) -> str:
    if None in values:
        return "–"
    value, low, high = (100 * v for v in values if v is not None)
    return f"{value:.0f}% ({low:.0f} to {high:.0f})"


def false_green() -> str:
    """Calm while users suffer, and alerts while no one does: each group of cases against its bound."""
    body = [
        f"| {row['group'].replace('_', ' ')} | {row['cases']} | {row['failed']} | {row['alerts']} | {row['notices']} "
        f"| {'kept' if row['is_good'] else '**missed**'} |"
        for row in rows("false_green")
        if "cases" in row
    ]
    return f"`make false-green`:\n\n{table('| group | cases | failed | alerts | notices | bound |', body)}"


UNSEEN = ("unseen", "seen", "page_score")


def unseen() -> str:
    """Root causes of unseen kinds of faults, compared with seen kinds and with the page score alone."""
    body = []
    for row in rows("unseen"):
        first = (_figure(dict(zip(("value", "low", "high"), row[way]["top_1"], strict=True))) for way in UNSEEN)
        three = (_figure({"value": row[way]["top_3"][0], "low": None}) for way in UNSEEN)
        body.append(f"| {row['kind'].replace('_', ' ')} | {row['faults']} | {' | '.join([*first, *three])} |")
    header = (
        "| faults that raise alerts | how many | root cause first: kind not in training | kind in training "
        "| page score alone | in top three: kind not in training | kind in training | page score alone |"
    )
    return f"`python -m benchmarks.bench_unseen`:\n\n{table(header, body)}"


WEIGHTS = {LEFT_OUT: "weights trained without it", SHIPPED_NAME: "shipped weights"}  # by name of the detector
GENERALIZED = (  # column, measure
    ("recall", "recall"),
    ("false alerts per hour", "false_pages_per_hour"),
    ("recall at 2 false alerts per hour", "recall_at_2_false_pages_per_hour"),
    ("recall with notices", "recall_with_notices"),
    ("false alerts and notices per hour", "false_pages_and_notices_per_hour"),
    ("incidents per fault found; 1 is right", "incidents_per_found_fault"),
    ("root cause first", "top_1_of_true_pages"),
    ("in the top three", "top_3_of_true_pages"),
)


def generalization() -> str:
    """Each generator of meshes, with weights from training on the other two, with the shipped weights, and by the
    contender that finds the most faults at 2 false alerts per hour."""
    results = rows("generalize")
    found = {(row["part"], row["measure"], row["detector"]): row for row in results}
    body = []
    for part in dict.fromkeys(row["part"] for row in results):
        detectors = dict.fromkeys(row["detector"] for row in results if row["part"] == part)
        ours = [name for name in detectors if name in WEIGHTS]
        for name in (*ours, *_strongest(Line("", part, "recall_at_2_false_pages_per_hour"), found)):
            figures = (found.get((part, measure, name), {"value": None}) for _, measure in GENERALIZED)
            label = WEIGHTS.get(name, f"contender: {name}")
            body.append(f"| {part.removesuffix(', located')} | {label} | {' | '.join(map(_figure, figures))} |")
    header = f"| tested on | detector | {' | '.join(column for column, _ in GENERALIZED)} |"
    return f"`make generalize`:\n\n{table(header, body)}"


def tables() -> list[tuple[Path, str, str]]:
    """Return file, name in the markers, and text of every table whose results exist."""
    readme, docs = ROOT / "README.md", ROOT / "docs"
    log = docs / "research-log.md"
    found = [
        (readme, "numbers", speed()),
        (docs / "results.md", "numbers", numbers()),
        (docs / "results.md", "memory", memory()),
        (docs / "results.md", "start", start()),
        (docs / "results.md", "overload", overload()),
        (docs / "results.md", "slow clients", slow_clients()),
        (docs / "results.md", "recovery", recovery()),
        (log, "kernels", kernels()),
        (log, "sizes", sizes()),
        (log, "evaluation set", evaluation_set()),
    ]
    results = ROOT / "benchmarks" / "results"
    if (results / "stages.jsonl").exists():  # made by `python -m benchmarks.bench_stages`
        found.append((docs / "results.md", "stages", stages()))
    if (results / "floors.jsonl").exists():  # made by `python benchmarks/bench_pipeline.py --against FOLDER`
        found.append((docs / "results.md", "floors", floors()))
    if (results / "store.jsonl").exists():  # made by `python -m benchmarks.bench_store`
        found.append((docs / "results.md", "store", store()))
    if (results / "history.jsonl").exists():  # made by `python -m benchmarks.bench_history`
        found.append((docs / "results.md", "history", history()))
    if (results / "sla.jsonl").exists():  # made by `python -m benchmarks.bench_sla`, in half an hour
        found.append((docs / "results.md", "service level", sla()))
    if (results / "actions.jsonl").exists():  # made by `python -m benchmarks.bench_actions`, in half an hour
        found.append((docs / "results.md", "steering", steering()))
    if (results / "batches.jsonl").exists():  # made by `python -m benchmarks.bench_batches`, in a quarter of an hour
        found.append((docs / "results.md", "batches", batches()))
    if (results / "places.jsonl").exists():  # made by `python -m benchmarks.bench_places`
        found.append((docs / "results.md", "places", places()))
    if (results / "kills_cluster.jsonl").exists():  # made by `python -m benchmarks.bench_kills_cluster`, in 40 minutes
        found.append((docs / "results.md", "kills on a cluster", kills_cluster()))
    if (results / "page.jsonl").exists():  # made by `python -m benchmarks.bench_page`
        found.append((docs / "results.md", "page", page()))
    if (results / "detection.jsonl").exists():  # made by `make evaluate`, in half an hour
        brief, whole = (f"{digest_line()}\n\n{detection(lines)}" for lines in (BRIEF, DETECTION))
        found += [(readme, "detection", brief), (docs / "model-card.md", "detection", whole)]
    if (results / "generalize.jsonl").exists():  # made by `make generalize`, in half an hour
        found.append((docs / "model-card.md", "generalization", generalization()))
    if (results / "unseen.jsonl").exists():  # made by `python -m benchmarks.bench_unseen`
        found.append((log, "unseen", unseen()))
    if (results / "false_green.jsonl").exists():  # made by `make false-green`
        found.append((log, "false green", false_green()))
    if (results / "drift.jsonl").exists():  # made by `python -m benchmarks.bench_drift`
        found.append((docs / "models.md", "drift", drift()))
    if (results / "reconstruction.jsonl").exists():  # made by `python -m benchmarks.bench_reconstruction`
        found.append((docs / "models.md", "reconstruction", reconstruction()))
    if (results / "missing.jsonl").exists():  # made by `python -m benchmarks.bench_missing`
        found.append((docs / "models.md", "missing telemetry", missing()))
    if (results / "caches.jsonl").exists():  # made by `python -m benchmarks.bench_caches`
        found.append((docs / "models.md", "caches", caches()))
    if (results / "online.jsonl").exists():  # made by `python -m benchmarks.bench_online`
        found.append((docs / "models.md", "online", online()))
    if (results / "exports.jsonl").exists():  # made by `python -m benchmarks.bench_exports`
        found.append((docs / "exports.md", "exports", exports()))
    if (results / "networks.jsonl").exists():  # made by `python -m benchmarks.bench_networks`
        found.append((docs / "own-network.md", "networks", networks()))
    if (results / "ablations.jsonl").exists():  # made by `make ablations`
        found.append((log, "ablations", ablations()))
    return found


def insert_table(text: str, name: str, table: str) -> str:
    """Insert a table into the text of a file, between the markers of its name."""
    begin, end = f"<!-- {name}: written by benchmarks/figures.py -->", f"<!-- end of {name} -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{table}\n\n{end}{rest.split(end)[1]}"


def main() -> None:
    for path, name, text in tables():
        path.write_text(insert_table(path.read_text(), name, text))
    pictures = ROOT / "docs" / "pictures"
    inference = [r for r in rows("kernels") if r["pass"] == "inference"]
    draw_speed(inference, rows("pipeline"), _pushes(), pictures / "speed.png")
    draw_throughput(rows("overload"), pictures / "throughput.png")


if __name__ == "__main__":
    main()
