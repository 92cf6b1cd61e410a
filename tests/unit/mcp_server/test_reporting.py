"""The progress that a client is told of."""

from ryecore.mcp_server.reporting import ProgressScale
from ryecore.results import ToolProgress


def of(call_id: str, progress: float, total: float | None = None) -> ToolProgress:
    return ToolProgress("tool:a/t", call_id, progress, total)


def test_a_tool_alone_is_told_of_in_its_own_unit() -> None:
    scale = ProgressScale()
    told = [scale.progress(of("a", value, 100)) for value in (0, 50, 50, 20, 100)]
    assert told == [(0, 100), (50, 100), None, None, (100, 100)]


def test_steps_and_several_tools_rise_on_one_scale() -> None:
    scale = ProgressScale()
    assert [scale.step(), scale.step()] == [1, 2]
    assert scale.progress(of("a", 0, 10)) is None
    assert scale.progress(of("a", 5, 10)) == (7, 12)
    assert scale.step() == 8
    assert scale.progress(of("b", 1)) == (9, None)
    assert scale.progress(of("a", 6, 10)) is None
    assert scale.progress(of("a", 10, 10)) == (12, 12)


def test_a_negative_first_value_is_told_of() -> None:
    assert ProgressScale().progress(of("a", -1, 3)) == (-1, 3)
