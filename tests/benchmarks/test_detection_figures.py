"""The figures of detection in README and in the model card say which detector they are of."""

import pytest

from benchmarks import figures
from benchmarks.figures import ROOT, digest_line
from lab.comparison.digest import SHORT, detector_digest
from lab.comparison.plan import OURS

BEGIN, END = "<!-- detection: written by benchmarks/figures.py -->", "<!-- end of detection -->"


@pytest.mark.parametrize("document", ["README.md", "docs/model-card.md"])
def test_documents_say_which_detector_their_figures_are_of(document: str) -> None:
    block = (ROOT / document).read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert digest_line() in block, "run `python -m benchmarks.figures`; for new figures, `make evaluate` first"


def test_figures_of_an_earlier_detector_never_pass_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(digest: str) -> str:
        monkeypatch.setattr(figures, "rows", lambda _: [{"detector": OURS, "digest": digest}])
        return digest_line()

    digest = detector_digest()
    assert measured(digest) == f"Figures of detector {digest[:SHORT]}."
    assert measured("0" * 64).endswith("All of them were measured with an earlier version than this one.")
