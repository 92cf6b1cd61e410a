"""A call reads and writes warm as it does cold."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.conformance.starts.starting import INHERENT, VARIANTS, Starts, cases_of
from tests.conformance.starts.tools import leftovers, others, streams
from tests.matrix import in_turn
from tests.workspace import SCRIPT, Workspace

GIVEN: dict[str, dict[str, Any]] = {
    "little": {"a": 1},
    "unicode": {"ü": '🌊\u2028\n\t\\"', "nul": "\0"},
    "numbers": {"n": [1, 1.0, 1e300, -0.0, 2**70, True, None, {"deep": [[[[]]]]}]},
    "a mebibyte": {"text": "ü" * (1 << 19)},
    "a pipe's worth": {"text": "x" * 65536},
}
ASKED: dict[str, list[dict[str, Any]]] = {
    "says": [{"text": text} for text in ("tide", "ü🌊\r\n", "")],
    "says_and_answers": [{"text": "ü"}],
    "prints_much": [{"fd": fd, "mib": mib} for fd, mib in ((1, 1), (1, 20), (2, 20))],
    "prints_much_without_an_end": [{"fd": 1, "mib": 1}, {"fd": 2, "mib": 1}],
}
WRITTEN = [(name, more) for name in cases_of(streams) for more in ASKED.get(name, [{}])]
IN_ANY_ORDER = {"many_files_in_order", "a_packed_file"}
"""What is open at an exit is closed in an order that depends on what was imported before."""
LEFT = [(module, name) for module in (leftovers, others) for name in cases_of(module)]
ENDINGS = [("function", False), ("script", True), ("script", False)]
READS_NOTHING = f"__executor_id__ = {SCRIPT!r}\nprint('unread')\n"


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starts]:
    workspace = Workspace(tmp_path_factory.mktemp("streams"))
    with Starts(workspace) as made:
        yield made


@pytest.mark.parametrize(("name", "variant"), in_turn([*GIVEN], VARIANTS))
def test_a_call_is_given_the_same(starts: Starts, name: str, variant: str) -> None:
    given = {"case": "nothing", **GIVEN[name]}
    cold, warm = starts.both(starts.tool(streams, variant), given)
    assert warm == cold
    assert warm.status == "success"


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_what_nobody_reads_is_no_matter(starts: Starts, size: int) -> None:
    starts.workspace.write("tools/acme/unread.py", READS_NOTHING)
    cold, warm = starts.both("tool:acme/unread", {"text": "x" * size} if size else {})
    assert warm == cold
    assert warm.status == "success"


@pytest.mark.parametrize(
    ("case", "more", "variant"),
    [
        pytest.param(name, more, variant, id=" ".join([name, *map(str, more.values()), variant]))
        for (name, more), variant in in_turn(WRITTEN, VARIANTS)
    ],
)
def test_a_call_writes_the_same(
    starts: Starts, case: str, more: dict[str, Any], variant: str
) -> None:
    cold, warm = starts.both(starts.tool(streams, variant), {"case": case, **more})
    assert warm == cold


@pytest.mark.parametrize(
    ("module", "case", "variant", "fails"),
    [
        pytest.param(module, name, variant, fails, id=f"{name} {variant}{' fails' * fails}")
        for (module, name), (variant, fails) in in_turn(LEFT, ENDINGS)
    ],
)
def test_a_call_leaves_the_same(
    starts: Starts, module: ModuleType, case: str, variant: str, fails: bool
) -> None:
    ref = starts.tool(module, variant)
    given = {"case": case, "place": str(starts.place), "fails": fails}
    cold, warm = starts.both(ref, given, timeout_s=20)
    if case in INHERENT and not fails:
        assert (warm.data, warm.files) == (cold.data, {"kept": "kept"})
    elif case in IN_ANY_ORDER:
        assert (warm.status, warm.data, warm.error) == (cold.status, cold.data, cold.error)
        assert warm.files.keys() == cold.files.keys()
        assert all(warm.files.values())
    else:
        assert warm == cold
