"""Writes the figures in benchmarks/results into README and docs, between their markers.

python -m benchmarks.figures
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.rows import Row, read
from lab.comparison.cases import EVEN, ODD
from lab.comparison.digest import SHORT, detector_digest
from lab.comparison.plan import LOUD, OURS

Found = Mapping[tuple[str, str, str], Row]  # by part, measure and detector
ROOT = Path(__file__).resolve().parents[1]
NOT_MEASURED: Row = {"value": None, "low": None}


def rows(name: str) -> list[Row]:
    return read(_file(name))


def _file(name: str) -> Path:
    return ROOT / "benchmarks" / "results" / f"{name}.jsonl"


def table(entries: Sequence[Row], header: str, line: str) -> str:
    """Return a Markdown table: its header, and a line for each row, with values in place of their names."""
    rule = f"|{'---|' * (header.count('|') - 1)}"
    return "\n".join([header, rule, *(line.format_map(row) for row in entries)])


def numbers() -> str:
    """Return the tables of speed, and the machine on which they were measured."""
    pipeline, serve = rows("pipeline"), _both_modes()
    in_process = table(
        pipeline,
        "| services / calls | snapshot to verdict p50 | p99 | network alone p50 |",
        "| {services:,} / {calls:,} | {total_p50_ms} ms | {total_p99_ms} ms | {score_p50_ms} ms |",
    )
    over_http = table(
        serve,
        "| services / calls | body | default mode p50 / p99 | empty application p50 | throughput mode p50 / p99 "
        "| empty application p50 |",
        "| {services:,} / {calls:,} | {format} "
        "| {default[push_p50_ms]:.0f} / {default[push_p99_ms]:.0f} ms | {default[noop_p50_ms]:.0f} ms "
        "| {throughput[push_p50_ms]:.0f} / {throughput[push_p99_ms]:.0f} ms | {throughput[noop_p50_ms]:.0f} ms |",
    )
    above = table(
        serve,
        "| services / calls | body | default mode | decoding | throughput mode | decoding |",
        "| {services:,} / {calls:,} | {format} | × {default[above]:.1f} | × {default[decoding]:.1f} "
        "| × {throughput[above]:.1f} | × {throughput[decoding]:.1f} |",
    )
    return (
        "Measured on {cores} shared cores without a GPU, with tuned glibc. The process has {threads} threads, a "
        f"replica {serve[0]['threads']}. The backend of the ops is `{{backend}}`, with torch {{torch}}. `make bench` "
        f"measures again.\n\nIn process:\n\n{in_process}\n\n"
        "Over HTTP, from POST to verdict, with one client. An empty application with the same hops is the baseline. "
        f"Throughput mode is `RAY_SERVE_THROUGHPUT_OPTIMIZED=1`:\n\n{over_http}\n\n"
        "The time of a push above the empty application, and the part of it that decodes the body. Both are multiples "
        f"of the time of the pipeline alone in the same run:\n\n{above}"
    ).format_map(pipeline[0])


def _both_modes() -> list[Row]:
    """Return a row for each size and body of pushes, with both modes' rows in it."""
    pairs: dict[tuple[int, bool], Row] = {}
    for row in rows("serve"):
        alone = row["pipeline_p50_ms"]
        shares = {"above": row["above_noop_p50_ms"] / alone, "decoding": row["stage_decode_p50_ms"] / alone}
        pairs.setdefault((row["services"], row["format"] != "json"), {**row})[row["mode"]] = row | shares
    return [pairs[key] for key in sorted(pairs)]


def speed() -> str:
    """Return the short table for the README: in process, and over HTTP if there is a result."""
    pushes = {(r["services"], r["calls"]): r for r in rows("serve") if (r["format"], r["mode"]) == ("json", "default")}
    pipeline = rows("pipeline")
    for row in pipeline:
        push = pushes.get((row["services"], row["calls"]))
        row["push"] = "{push_p50_ms:.0f} / {push_p99_ms:.0f} ms".format_map(push) if push else "–"
    return table(
        pipeline,
        f"| services / calls; {pipeline[0]['cores']} shared cores, no GPU | snapshot to verdict, p50 / p99 "
        "| over HTTP (JSON), p50 / p99 |",
        "| {services:,} / {calls:,} | {total_p50_ms:.0f} / {total_p99_ms:.0f} ms | {push} |",
    )


def floors() -> str:
    """Return a snapshot's CPU time before and after the newest work on it, in ms and in floors."""
    text = table(
        rows("floors"),
        "| services / calls | CPU time, before → after | ratio | floor | floors, before → after |",
        "| {services:,} / {calls:,} | {before_ms:.2f} → {after_ms:.2f} ms | {ratio:.2f} | {floor_ms:.2f} ms "
        "| {before_floors:.1f} → {after_floors:.1f} |",
    )
    return (
        "One thread, medians of alternating processes "
        f"(`python -m benchmarks.bench_pipeline --against FOLDER`, {rows('floors')[0]['rounds']} rounds, with a "
        "checkout of the version before in the folder). A floor is the time of the network's multiply-adds at the "
        f"speed of the fastest product of matrices in the same run:\n\n{text}"
    )


def start() -> str:
    """Return the time until a service is ready, and its processes' memory at rest, beside an empty application."""
    recorded = rows("start")
    contenders = list(dict.fromkeys(r["contender"] for r in recorded))
    starts = {name: [r for r in recorded if r["contender"] == name and "seconds" in r] for name in contenders}
    cpu = {name: median(r["cpu"] for r in mine) for name, mine in starts.items()}
    entries = [
        {
            "name": name,
            "cpu": cpu[name],
            "ratio": cpu[name] / cpu[contenders[-1]],
            "seconds": min(r["seconds"] for r in mine),
            "pss": median(r["pss"] for r in mine) / 2**20,
        }
        for name, mine in starts.items()
    ]
    ours = [
        r | {"pss": r["pss"] / 2**20, "uss": r["uss"] / 2**20}
        for r in sorted(recorded, key=lambda r: -r["pss"])
        if "role" in r and r["contender"] == contenders[0]
    ]
    starts_table = table(
        entries,
        "| what | CPU of all processes until ready | ratio | ready after | memory at rest |",
        "| {name} | {cpu:.1f} s | {ratio:.1f} | {seconds:.0f} s | {pss:,.0f} MiB |",
    )
    processes_table = table(
        ours,
        "| process | number | memory of each | private |",
        "| {role} | {processes} | {pss:.0f} MiB | {uss:.0f} MiB |",
    )
    return (
        f"Medians of {len(starts[contenders[0]])} starts in turn on {recorded[0]['cores']} shared cores; other "
        "programs used them too, so compare CPU; time is from the fastest start. Ready: it answers over HTTP. "
        f"Then memory at rest, with one mesh of {recorded[0]['services']} services, as the proportional set size: "
        f"processes divide the pages that they share (`python -m benchmarks.bench_start`):\n\n{starts_table}\n\n"
        f"The processes of `tagae serve` at rest:\n\n{processes_table}"
    )


def overload() -> str:
    """Return goodput, latencies and rejections, by clients."""
    text = table(
        [
            row | {key.removesuffix("_seconds"): _ms(row[key]) for key in row if key.endswith("_seconds")}
            for row in rows("overload")
        ],
        "| services | body | clients | verdicts/s | accepted, p50 / p99 | rejections | rejected, p95 "
        "| empty request, p50 |",
        "| {services} | {format} | {clients} | {goodput_per_second:.1f} | {accepted_p50} / {accepted_p99} "
        "| {rejections} | {rejected_p95} | {hop_p50} |",
    )
    return (
        "Each client has its own mesh, runs in a closed loop, and waits as long as a 429 says. Clients and service "
        "share 2 cores. Verdicts per second are the median of the rounds "
        f"(`python -m benchmarks.bench_overload`):\n\n{text}"
    )


def configurations(recorded: Sequence[Row] | None = None) -> str:
    """Return rates and CPU time by configuration: the recorded rows, or another machine's, each beside ours."""
    shown_rows: list[Row] = [{"ours": None} | row for row in recorded or rows("configurations")]
    for row in shown_rows:
        row["beside"] = "" if row["ours"] is None else f" (× {row['cpu_ms'] / row['ours']:.1f} of ours)"
        row["rate"] = row["per_second"] / shown_rows[0]["per_second"]
    return table(
        shown_rows,
        "| cores | sessions | services | clients | verdicts/s | × the first line | p50 / p99 | CPU time of a verdict |",
        "| {cores} | {sessions} | {services} | {clients} | {per_second} | × {rate:.1f} | {p50_ms} / {p99_ms} ms "
        "| {cpu_ms} ms{beside} |",
    )


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1000 * seconds:.0f} ms"


def kernels() -> str:
    """Return a layer beside its contenders, and the network beside the processor's peak."""
    kernel_rows = rows("kernels")
    inference = [r for r in kernel_rows if r["pass"] == "inference"]
    training = {r["nodes"]: r for r in kernel_rows if r["pass"] != "inference"}
    times = [f"{name}_ms" for name in ("layer", "reference", "pyg", "compiled", "aot", "onnx")]
    beside = [
        {**r, **{name: f"{r[name]:.2f}" if name in r else "–" for name in times}, "training": training[r["nodes"]]}
        for r in inference
    ]
    layers = table(
        beside,
        "| nodes / edges | our layer | its reference | PyG eager | `torch.compile` | AOTInductor | ONNX Runtime "
        "| our layer with backward | PyG with backward |",
        "| {nodes:,} / {edges:,} | {layer_ms} | {reference_ms} | {pyg_ms} | {compiled_ms} | {aot_ms} | {onnx_ms} "
        "| {training[layer_ms]:.1f} | {training[pyg_ms]:.1f} |",
    )
    shares = table(
        inference,
        "| services / calls | the network, ms | share of the peak | our layer against PyG eager "
        "| against `torch.compile` |",
        "| {nodes:,} / {edges:,} | {network_ms:.2f} | {peak_share:.2f} | {vs_pyg:.1f} | {vs_compiled:.1f} |",
    )
    about = "Milliseconds, {threads} thread, `{backend}`, torch {torch}, PyG {pyg}:".format_map(inference[0])
    return f"{about}\n\n{layers}\n\n{shares}"


def _groups(all_rows: Sequence[Row], name: str) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows by one of their values, in the order of its first appearance."""
    for value in dict.fromkeys(row[name] for row in all_rows):
        yield value, [row for row in all_rows if row[name] == value]


def kills_cluster() -> str:
    """Return times without a verdict after random kills on a cluster, and losses."""
    *kills, about = rows("kills_cluster")
    lines = []
    for role, role_rows in sorted(_groups(kills, "role")):
        # Kills without a gap came while an earlier kill still had its effect.
        with_gap = [row for row in role_rows if row["gap_seconds"]]
        gaps = [row["gap_seconds"] for row in with_gap]
        alone = [row["gap_seconds"] for row in with_gap if row["kills_in_gap"] == 1]
        figures: dict[str, tuple[Callable[..., float], list[float]]] = {
            "middle": (median, gaps),
            "alone": (max, alone),
            "longest": (max, gaps),
        }
        texts = {name: f"{function(values):.1f} s" if values else "–" for name, (function, values) in figures.items()}
        lines.append({"role": role, "times": len(role_rows), **texts})
    gaps_table = table(
        lines,
        "| killed | times | time without a verdict, median | longest, no other kill meanwhile | longest |",
        "| {role} | {times} | {middle} | {alone} | {longest} |",
    )
    memory = table(
        [{"what": name, "early": early, "late": late} for name, (early, late) in about["memory"].items()],
        "| what | second sixth | last sixth |",
        "| {what} | {early:,.1f} | {late:,.1f} |",
    )
    return (
        "{kills} random kills in {minutes:.0f} minutes, while other programs used the same cores "
        "(`python -m tests.live.kill_campaign --seed {seed}`): {verdicts:,} snapshots of {meshes} pushed meshes "
        "and {collected:,} of a collected one were acknowledged. None is missing or counted twice, and all verdicts "
        "equal a pipeline without a service. {unscored} verdicts had no scores, because no scorer answered in time. "
        "{repeated} pushes were repeated. {incidents} incidents caused {events} events at a webhook: none is missing, "
        f"and {{events_again}} came again under the same id.\n\n{gaps_table}\n\n"
        "Memory in MiB of the largest process of each kind, as medians over the second sixth and the last sixth of the "
        "time. `redis` is the Redis with Ray's state, `store` is our data in it. `processes` is the number of "
        f"processes of Serve.\n\n{memory}"
    ).format_map(about)


def false_green() -> str:
    """Return each group of false-green cases with its bound."""
    groups = [
        row | {"group": row["group"].replace("_", " "), "bound": "kept" if row["is_good"] else "**missed**"}
        for row in rows("false_green")
        if "cases" in row
    ]
    text = table(
        groups,
        "| group | cases | failed | alerts | notices | bound |",
        "| {group} | {cases} | {failed} | {alerts} | {notices} | {bound} |",
    )
    return f"`make false-green`:\n\n{text}"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a detection table.

    Attributes:
        title: text of the first column.
        higher: whether a higher value is better.
        beside, limit: another measure shown with it, and its limit for contenders.
        against: the only contender that counts, and its measure.
        ours: our detector that the line shows.
    """

    title: str
    part: str
    measure: str
    higher: bool = True
    beside: str = ""
    limit: float = float("inf")
    against: tuple[str, str] | None = None
    ours: str = OURS


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
AT_FALSE_ALARMS = {f"recall_at_{n}_false_alarms": f"recall at {n} false alarm{'s' * (n > 1)}" for n in (1, 3, 6)}
RANKS = {"top_1": "root cause first", "top_3": "root cause in the top three"}
RATE, SHARE = "false_pages_per_hour", "alarm_share"
lower = partial(Line, higher=False)
DETECTION = (
    Line("PetShop, 44 issues: root cause ranked first", ISSUES, "top_1"),
    Line("PetShop: root cause in the top three", ISSUES, "top_3"),
    Line("PetShop, latency issues: root cause first", ISSUES, "top_1_latency"),
    Line("PetShop, availability issues: root cause first", ISSUES, "top_1_availability"),
    lower("PetShop, two days of normal traffic: false alarms per day", QUIET, "false_alarms_per_day"),
    *(
        Line(f"Online Boutique{', 24 faults, cold start' * (i == 0)}: {title}", SHOP, measure)
        for i, (measure, title) in enumerate((AT_FALSE_ALARMS | {"auroc": "AUROC"} | RANKS).items())
    ),
    Line(
        "Online Boutique, default threshold: recall, and share of normal snapshots in alarm",
        SHOP,
        "recall",
        beside=SHARE,
        limit=0.05,
    ),
    lower(
        "Online Boutique: Brier score of the probability, and of the base rate",
        SHOP,
        "brier",
        beside="brier_of_base_rate",
    ),
    *(
        Line(f"{dataset}: {title}", part, measure)
        for dataset, part in (
            ("Sock Shop, 62 even cases", CASES),
            ("Sock Shop, 63 odd cases, used for choosing", ODD_CASES),
        )
        for measure, title in (AT_FALSE_ALARMS | RANKS).items()
    ),
    *(
        Line(
            f"Sock Shop, even cases, default threshold{words}: recall, and share of normal snapshots in alarm",
            CASES,
            measure,
            beside=SHARE,
            limit=0.1,
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
        beside=RATE,
        limit=2.0,
    ),
    Line("300 services: recall at 2 false alerts per hour", MESH, "recall_at_2_false_pages_per_hour"),
    Line(
        "300 services, with a budget of 20 false alerts per hour: recall, and false alerts per hour",
        MESH,
        "recall",
        beside=RATE,
        limit=20.0,
        ours=LOUD,
    ),
    Line(
        "300 services, faults from 20 sigmas: root cause in the top three of a true alert",
        MESH,
        "top_3_of_true_pages_from_moderate",
    ),
    lower("300 services, faults from 100 sigmas: median delay in snapshots", MESH, "delay_snapshots_gross"),
    *(
        lower(
            f'300 services: false alerts per hour at the recall of the contender "{rule.replace("_", " ")}"',
            MESH,
            f"false_pages_per_hour_at_recall_of_{rule}",
            against=(rule.replace("_", " "), RATE),
        )
        for rule in ("guarded", "own_limit")
    ),
    lower(
        "300 services, no fault injected: alerts per day, and budgeted alerts per day",
        MESH,
        "fault_free_pages_per_day",
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
    lower("300 services: incidents per fault found; 1 is right", MESH, "incidents_per_found_fault"),
    *(
        lower(
            f"{size} services, silent telemetry, no fault injected: alerts per day, and per hour of silence",
            part,
            "fault_free_pages_per_day",
            beside="false_pages_per_hour_of_silence",
        )
        for size, part in (("300", SILENT), ("3,000", SILENT_LARGE))
    ),
    Line(
        "Simulated, 3,000 services, default threshold: recall, and false alerts per hour",
        LARGE,
        "recall",
        beside=RATE,
        limit=15.0,
    ),
    Line("3,000 services: recall at 15 false alerts per hour", LARGE, "recall_at_15_false_pages_per_hour"),
)
BRIEF = (
    Line("PetShop (real), 44 issues: root cause in the top three", ISSUES, "top_3"),
    Line("Online Boutique (real), 24 faults, cold start: recall at 3 false alarms", SHOP, "recall_at_3_false_alarms"),
    Line("Online Boutique (real): root cause in the top three", SHOP, "top_3"),
    *(
        Line(f"Sock Shop (real){title}", CASES, measure)
        for measure, title in (
            ("recall_at_1_false_alarms", ", 62 cases, cold start: recall at 1 false alarm"),
            ("recall_at_3_false_alarms", ": recall at 3 false alarms"),
            ("recall_at_6_false_alarms", ": recall at 6 false alarms"),
            ("top_1", ": root cause ranked first"),
            ("top_3", ": root cause in the top three"),
        )
    ),
    *(
        Line(f"simulated, {size} services: recall, and false alerts per hour", part, "recall", beside=RATE, limit=limit)
        for size, part, limit in (("300", MESH, 2.0), ("3,000", LARGE, 15.0))
    ),
    lower(
        "simulated, 300 services, no fault injected: alerts per day, and budgeted alerts per day",
        MESH,
        "fault_free_pages_per_day",
        beside="promised_pages_per_day",
    ),
)


def detection(lines: Sequence[Line] = DETECTION) -> str:
    """Return our figures and the strongest contender's, with the better one in bold."""
    results = {(row["part"], row["measure"], row["detector"]): row for row in rows("detection")}
    cells = [_line(line, results) for line in lines if (line.part, line.measure, line.ours) in results]
    return table(cells, "| | TAGAE | strongest contender |", "| {what} | {ours} | {best} |")


def with_digest(lines: Sequence[Line]) -> str:
    return f"{digest_line()}\n\n{detection(lines)}"


def digest_line() -> str:
    """Name the figures' detectors by the first digits of their digests, and say whether it is this one."""
    digests = {str(row.get("digest", "unknown")) for row in rows("detection") if row["detector"] in (OURS, LOUD)}
    names = ", ".join(sorted(digest[:SHORT] for digest in digests))
    if digests == {detector_digest()}:
        return f"Figures of detector {names}."
    quantity = "Some" if detector_digest() in digests else "All"
    return f"Figures of detector {names}. {quantity} of them were measured with an earlier version than this one."


def _line(line: Line, results: Found) -> Row:
    def show(detector: str, measure: str = line.measure) -> str:
        beside = results.get((line.part, line.beside, detector), NOT_MEASURED)["value"]
        text = _figure(results.get((line.part, measure, detector), NOT_MEASURED))
        return text if beside is None else f"{text}, {beside:.2g}"

    name, measure = line.against or (_strongest(line, results), line.measure)
    cells = {"ours": show(line.ours), "best": f"{name} {show(name, measure)}" if name else "none"}
    ours, best = (
        results.get(key, NOT_MEASURED)["value"]
        for key in ((line.part, line.measure, line.ours), (line.part, measure, name))
    )
    if None not in (ours, best) and ours != best:
        better = "ours" if (ours > best) is line.higher else "best"
        cells[better] = f"**{cells[better]}**"
    return {"what": line.title, **cells}


def _strongest(line: Line, results: Found) -> str:
    """Return the best contender within the second measure's limit; empty if there is none."""
    best: Callable[..., str] = max if line.higher else min
    names = _contenders(line, results)
    return best(names, key=lambda name: results[line.part, line.measure, name]["value"]) if names else ""


def _contenders(line: Line, results: Found) -> list[str]:
    """Return the contenders within the second measure's limit; without a value, only if there is no limit."""

    def is_within(name: str) -> bool:
        value = results.get((line.part, line.beside, name), NOT_MEASURED)["value"] if line.beside else None
        return not line.beside or (line.limit == float("inf") if value is None else bool(value <= line.limit))

    return [
        name
        for (part, measure, name), row in results.items()
        if (part, measure) == (line.part, line.measure) and name not in (OURS, LOUD)
        if row["value"] is not None and is_within(name)
    ]


def _figure(row: Row) -> str:
    if row["value"] is None:
        return "–"
    digits = 2 if row["value"] < 1.5 else 1
    interval = "" if row["low"] is None else f" ({row['low']:.{digits}f} to {row['high']:.{digits}f})"
    return f"{row['value']:.{digits}f}{interval}"


def tables() -> list[tuple[Path, str, str]]:
    """Return the file, the markers' name and the text of every table whose results exist."""
    readme, docs = ROOT / "README.md", ROOT / "docs"
    results, card, log = docs / "results.md", docs / "model-card.md", docs / "research-log.md"
    plan: list[tuple[str, Path, str, Callable[[], str]]] = [  # name of the results, file, name in the markers, text
        ("pipeline", readme, "numbers", speed),
        ("pipeline", results, "numbers", numbers),
        ("floors", results, "floors", floors),
        ("start", results, "start", start),
        ("configurations", results, "configurations", configurations),
        ("overload", results, "overload", overload),
        ("kills_cluster", results, "kills on a cluster", kills_cluster),
        ("detection", readme, "detection", partial(with_digest, BRIEF)),
        ("detection", card, "detection", partial(with_digest, DETECTION)),
        ("false_green", log, "false green", false_green),
        ("kernels", log, "kernels", kernels),
    ]
    return [(path, marker, text()) for name, path, marker, text in plan if _file(name).exists()]


def insert_table(text: str, name: str, table: str) -> str:
    """Insert a table into a file's text, between the markers with its name."""
    begin, end = f"<!-- {name}: written by benchmarks/figures.py -->", f"<!-- end of {name} -->"
    before, after = text.split(begin)
    return f"{before}{begin}\n\n{table}\n\n{end}{after.split(end)[1]}"


def main() -> None:
    for path, name, text in tables():
        path.write_text(insert_table(path.read_text(), name, text))


if __name__ == "__main__":
    main()
