"""The pictures of the documentation show what ryecore does now."""

import re
import runpy
from pathlib import Path

from tests.forking import ROOT

PICTURES = ROOT / "docs/assets/pictures"


def _compared(svg: str) -> str:
    """Return a picture without what differs from run to run: hashes, ids, numbers and padding."""
    svg = re.sub(r"-\d{10}(-[0-9a-f]{8})?\b", "-ID", svg)  # threads of one second have more
    svg = re.sub(r"[0-9a-f]{8,}", "H", svg)
    return re.sub(r"\s+", " ", re.sub(r"-?\d*\.?\d+", "N", svg))


def test_each_picture_is_what_its_script_draws_now(tmp_path: Path) -> None:
    drawn = runpy.run_path(str(ROOT / ".ci/pictures.py"))["draw"](tmp_path)

    committed = {file.name: file.read_text().strip() for file in PICTURES.iterdir()}
    assert {name: _compared(svg) for name, svg in drawn.items()} == {
        name: _compared(svg) for name, svg in committed.items()
    }, "make pictures draws them anew"


def test_each_picture_is_on_a_page_that_says_what_it_shows() -> None:
    pages = [page.read_text() for page in (ROOT / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"!\[[^]]+\]\(\S*/(\S+\.svg)\)", page)}

    assert shown == {file.name for file in PICTURES.iterdir()}
