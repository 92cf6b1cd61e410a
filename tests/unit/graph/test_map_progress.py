"""The progress of a map and the picture of its cost: what is counted, told and drawn."""

import re
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ryecore.display.sanitize import RyeWarning
from ryecore.display.text import count_columns
from ryecore.graph.map_progress import MapProgress
from ryecore.graph.map_result import MapReport, MapRow, RowStatus
from tests.unit.actions.test_maps import COST, Host, rows


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_a_function_sees_how_far_a_map_has_come(tmp_path: Path) -> None:
    host, seen = Host(tmp_path), list[MapProgress]()
    host.broken = {"t2"}
    async with host.open() as rye:
        done = await rye.map(host.ref, rows(4), limits={"spend": 0.05}, progress=seen.append)
        assert seen[0].rows == 4
        last = seen[-1]
        assert (last.done, last.failed, last.is_over) == (4, 1, True)
        assert last.spend_microcents == 3 * COST
        assert last.limit_microcents == 5_000_000
        assert [one.done for one in seen] == sorted(one.done for one in seen)
        seen.clear()
        host.broken = set()
        await done.retry_failed(progress=seen.append)
    assert (seen[-1].rows, seen[-1].done, seen[-1].failed) == (4, 4, 0)


@pytest.mark.anyio
async def test_a_view_that_raises_ends_alone(tmp_path: Path) -> None:
    host = Host(tmp_path)

    def broken(progress: MapProgress) -> None:
        raise LookupError("no screen")

    async with host.open() as rye:
        with pytest.warns(RyeWarning, match="no screen"):
            done = await rye.map(host.ref, rows(2), progress=broken)
    assert done.status == "completed"


@pytest.mark.anyio
async def test_no_terminal_gets_no_progress_unless_it_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = Host(tmp_path)
    async with host.open() as rye:
        await rye.map(host.ref, rows(2))
        await rye.map(host.ref, rows(2), progress=False)
        assert capsys.readouterr().err == ""
        await rye.map(host.ref, rows(2), progress=True)
    assert capsys.readouterr().err.splitlines()[-1] == (
        "[map:directive:ds/label] 2 of 2 rows, $0.0009"
    )


@pytest.mark.parametrize("width", [10, 30, 50, 79, 120, 300])
@pytest.mark.parametrize("is_over", [False, True])
def test_one_line_fits_any_terminal(width: int, is_over: bool) -> None:
    progress = MapProgress(
        "directive:ds/label", 10_000, 4_120, 3, 31_000_000, 50_000_000, 72.0, 101.0, is_over
    )
    (line,) = progress.render(width=width).plain().splitlines()
    if width >= 79:
        assert "4,120/10,000  3 failed  $0.31/0.5  1:12" in line
        assert ("1:41 left" in line) is not is_over
        assert count_columns(line) <= width


def _report(statuses: list[RowStatus]) -> MapReport:
    results = tuple(
        MapRow(index, one, None, None, Decimal(index).scaleb(-4), None, {})
        for index, one in enumerate(statuses)
    )
    return MapReport(
        run_id="rye/map/map-1", item_id="directive:a/<b>&", status="completed", results=results
    )


@pytest.mark.parametrize("count", [1, 7, 108, 109, 1000, 10_000])
def test_a_picture_has_a_column_for_each_row_or_for_several(count: int) -> None:
    svg = _report(["completed"] * count).to_svg()
    ET.fromstring(svg)
    columns = re.findall(r'<g class="running"><title>rows? ', svg)
    assert min(count, 54) <= len(columns) <= 108
    assert "directive:a/&lt;b&gt;&amp; for each row" in svg


def test_a_picture_marks_the_rows_that_did_not_complete() -> None:
    svg = _report(["completed", "failed", "interrupted", "pending"]).to_svg()
    assert "row 1: $0.0001, failed" in svg
    assert "row 2: $0.0002, cancelled" in svg
    for part in ("1 completed", "1 failed", "1 interrupted", "1 not run"):
        assert part in svg
    assert _report(["completed"])._repr_html_().count("<svg ") == 1
