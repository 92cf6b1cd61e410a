"""A call ends warm as it ends cold: what it answers, how it fails, what it says of that."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.conformance.starts.starting import VARIANTS, Starts, cases_of
from tests.conformance.starts.tools import ends, partings
from tests.matrix import IS_SOAK, in_turn
from tests.workspace import Workspace

SIGNALS = [2, 9, 11, 13, 15, 17, 20, 64, *([1, 10, 14, 31, 34] if IS_SOAK else [])]
"""Those that Python, the kernel or a shell treats each in a way of its own."""
EXITS = [n for n in range(20) if IS_SOAK or n not in (1, 2, 4, 9, 16, 18)]
"""Which of the statuses in `ends.exits`; the ordinary run leaves out what others stand for."""
ASKED: dict[str, list[dict[str, Any]]] = {
    "exits": [{"which": n} for n in EXITS],
    "exits_by_a_class_of_its_own": [{"code": code} for code in (None, 0, 4, "ebb")],
    "exits_at_once": [{"code": code} for code in (0, 4)],
    "is_killed": [{"signal": n} for n in SIGNALS],
    "raises_a_signal": [{"signal": n} for n in (2, 6, 13, 15)],
    "a_deep_result": [{"depth": depth} for depth in (300, 5000)],
    "a_huge_result": [{"size": 1 << 20}, {"size": 17 << 20}],
    "a_number_of_many_digits": [{"digits": 100}, {"digits": 5000}],
}
CASES = [
    (module, name, more)
    for module in (ends, partings)
    for name in cases_of(module)
    for more in ASKED.get(name, [{}])
]


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starts]:
    with Starts(Workspace(tmp_path_factory.mktemp("ends"))) as made:
        yield made


@pytest.mark.parametrize(
    ("module", "case", "more", "variant"),
    [
        pytest.param(*case, variant, id=" ".join([case[1], *map(str, case[2].values()), variant]))
        for case, variant in in_turn(CASES, VARIANTS)
    ],
)
def test_a_call_ends_warm_as_it_ends_cold(
    starts: Starts, module: ModuleType, case: str, more: dict[str, Any], variant: str
) -> None:
    ref = starts.tool(module, variant)
    cold, warm = starts.both(ref, {"case": case, "place": str(starts.place), **more})
    assert warm == cold
