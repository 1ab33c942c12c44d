"""Write the figures of benchmarks/results into the README files, between their markers.

python benchmarks/figures.py
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- numbers: written by benchmarks/figures.py -->", "<!-- end of numbers -->"


def rows(name: str) -> list[dict[str, Any]]:
    """Lines of one result file."""
    return [json.loads(line) for line in (ROOT / "benchmarks" / "results" / f"{name}.jsonl").read_text().splitlines()]


def table(header: str, body: list[str]) -> str:
    """Markdown."""
    return "\n".join([header, "|".join(["", *["---"] * (header.count("|") - 1), ""]), *body])


def numbers() -> str:
    """The tables, with what they were measured on."""
    pipeline, serve = rows("pipeline"), rows("serve")
    about = pipeline[0]
    in_process = table(
        "| services / calls | snapshot to verdict p50 | p99 | of it the network p50 |",
        [
            f"| {r['services']:,} / {r['calls']:,} | {r['total_p50_ms']} ms | {r['total_p99_ms']} ms "
            f"| {r['score_p50_ms']} ms |"
            for r in pipeline
        ],
    )
    over_http = table(
        "| services / calls | body | default proxy p50 / p99 | no-op p50 | throughput mode p50 / p99 | no-op p50 |",
        [_http_row(n, wire, serve) for n in sorted({r["services"] for r in serve}) for wire in ("json", "arrow")],
    )
    decode = table(
        "| services / calls | JSON | JSON columns | MessagePack | Arrow | JSON by pydantic, as before |",
        [
            f"| {r['services']:,} / {r['calls']:,} | {r['json_ms']:.1f} ms | {r['json_columns_ms']:.1f} ms "
            f"| {r['msgpack_ms']:.1f} ms | {r['arrow_ms']:.1f} ms | {r['pydantic_ms']:.1f} ms |"
            for r in rows("decode")
        ],
    )
    return (
        f"{about['cores']} shared cores, no GPU, {about['threads']} threads in process, {serve[0]['threads']} in "
        f"a replica, tuned glibc, ops in their {about['backend']} form (plain torch {about['torch']}); `make bench` "
        f"measures anew. In process:\n\n{in_process}\n\nOver HTTP from POST to verdict, one client, beside an "
        "application with the same hops and nothing in them (throughput mode: `RAY_SERVE_THROUGHPUT_OPTIMIZED=1`):"
        f"\n\n{over_http}\n\nFrom bytes to a checked snapshot, one thread, median:\n\n{decode}"
    )


def _http_row(services: int, wire: str, serve: list[dict[str, Any]]) -> str:
    found = {r["mode"]: r for r in serve if (r["services"], r["format"]) == (services, wire)}
    calls = next(iter(found.values()))["calls"]
    cells = [
        f"{r['push_p50_ms']:.0f} / {r['push_p99_ms']:.0f} ms | {r['noop_p50_ms']:.0f} ms"
        for r in (found["default"], found["throughput"])
    ]
    return f"| {services:,} / {calls:,} | {wire} | {' | '.join(cells)} |"


def evaluation_set() -> str:
    """Static rules on the simulated evaluation set."""
    return table(
        "| services | churn | rule | faults | recall (95%) | false pages an hour | culprit first / in three |",
        [
            f"| {r['services']:,} | {r['churn']} | {r['rule']} | {r['faults']} "
            f"| {r['recall']:.2f} ({r['recall_low']:.2f} to {r['recall_high']:.2f}) | {r['false_pages_per_hour']:.0f} "
            f"| {r['top_1']:.2f} / {r['top_3']:.2f} |"
            for r in rows("evaluation_set")
        ],
    )


def write(path: Path, begin: str, end: str, text: str) -> None:
    """Put the text between two markers of a file."""
    before, rest = path.read_text().split(begin)
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}")


def main() -> None:
    write(ROOT / "README.md", BEGIN, END, numbers())
    simulator = ROOT / "serve_app" / "sources" / "README.md"
    begin, end = "<!-- evaluation set: written by benchmarks/figures.py -->", "<!-- end of evaluation set -->"
    write(simulator, begin, end, evaluation_set())


if __name__ == "__main__":
    main()
