"""PNG from our SVG, and what the log says if there is none."""

import struct
import sys

import pytest

from serve_app.alerts import raster
from serve_app.alerts.raster import render_png

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 90 60"><text x="4" y="30">shop/cart</text></svg>'


@pytest.fixture(autouse=True)
def _forget_warnings() -> None:
    raster._warn_once.cache_clear()


def test_a_picture_has_the_width_that_was_asked_for() -> None:
    png = render_png(SVG, 1200)
    assert png is not None
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">II", png[16:24]) == (1200, 800)


def test_letters_are_drawn_without_fonts_of_the_system() -> None:
    empty = SVG.replace("shop/cart", "")
    letters, none = render_png(SVG, 400), render_png(empty, 400)
    assert letters is not None
    assert none is not None
    assert len(letters) > 2 * len(none)


def test_without_the_package_there_is_no_picture_and_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    assert [render_png(SVG, 1200) for _ in range(3)] == [None, None, None]
    assert caplog.text.count("the package resvg-py is not installed; pip install 'tagae[pictures]'") == 1


@pytest.mark.parametrize("svg", ["", "<svg", "<svg xmlns='http://www.w3.org/2000/svg'>" + " " * (5 << 20) + "</svg>"])
def test_what_cannot_be_drawn_is_in_the_log(svg: str, caplog: pytest.LogCaptureFixture) -> None:
    assert render_png(svg, 1200) is None
    assert "messages are sent without the incident's picture" in caplog.text
