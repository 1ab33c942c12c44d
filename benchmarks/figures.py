"""Write the figures of benchmarks/results into the README, between its two markers.

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
    """Both tables, with what they were measured on."""
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
        "| services / calls | POST to verdict p50 | p99 | no-op with the same hops p50 | above it p50 |",
        [
            f"| {r['services']:,} / {r['calls']:,} | {r['push_p50_ms']} ms | {r['push_p99_ms']} ms "
            f"| {r['noop_p50_ms']} ms | {r['above_noop_p50_ms']} ms |"
            for r in serve
        ],
    )
    return (
        f"{about['cores']} shared cores, no GPU, {about['threads']} threads in process, {serve[0]['threads']} in "
        f"a replica, tuned glibc, ops in their {about['backend']} form (plain torch {about['torch']}); `make bench` "
        f"measures anew. In process:\n\n{in_process}\n\nOver HTTP, one client, JSON, default proxy:\n\n{over_http}"
    )


def main() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    readme.write_text(f"{before}{BEGIN}\n\n{numbers()}\n\n{END}{after}")


if __name__ == "__main__":
    main()
