"""The figures of detection in README and in the model card are of this detector."""

import re

import pytest

from benchmarks.figures import ROOT, rows
from lab.comparison.digest import SHORT, detector_digest
from lab.comparison.plan import LOUD, OURS

BEGIN, END = "<!-- detection: written by benchmarks/figures.py -->", "<!-- end of detection -->"


def test_our_rows_were_measured_with_this_detector() -> None:
    digests = {row.get("digest") for row in rows("detection") if row["detector"] in (OURS, LOUD)}
    assert digests == {detector_digest()}, "the detector has changed since: run `make evaluate`"


@pytest.mark.parametrize("document", ["README.md", "docs/model-card.md"])
def test_documents_show_figures_of_these_rows(document: str) -> None:
    digests = {str(row.get("digest"))[:SHORT] for row in rows("detection") if row["detector"] in (OURS, LOUD)}
    block = (ROOT / document).read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    shown = re.findall(r"^Figures of detector ([0-9a-f]+)\.$", block, re.MULTILINE)
    assert set(shown) == digests, "run `python -m benchmarks.figures`"
