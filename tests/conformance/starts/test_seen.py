"""What a tool sees of itself in a call that started warm is what it sees in a cold one."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.conformance.starts.starting import INHERENT, Starts, cases_of
from tests.conformance.starts.tools import seen
from tests.workspace import Workspace

Facts = dict[str, Any]
SHOWN = ("function", "script", "bare script")
CHANCE = {"call_id", "chance", "keys_of_processes"}
NAMES = [name for name in cases_of(seen) if name not in CHANCE]


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starts]:
    with Starts(Workspace(tmp_path_factory.mktemp("seen"))) as made:
        yield made


@pytest.fixture(scope="module")
def views(starts: Starts) -> dict[str, tuple[Facts, Facts]]:
    """What a tool of each variant saw in a cold call, and in a warm one."""
    return {variant: both_views(starts, variant, NAMES) for variant in SHOWN}


def both_views(starts: Starts, variant: str, names: Sequence[str]) -> tuple[Facts, Facts]:
    given = {"case": " ".join(names), "host": os.getpid()}
    cold, warm = starts.both(starts.tool(seen, variant), given)
    assert cold.error is None
    assert warm.error is None
    return (dict(zip(names, cold.data, strict=True)), dict(zip(names, warm.data, strict=True)))


@pytest.mark.parametrize("variant", SHOWN)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in INHERENT])
def test_a_tool_cannot_tell_how_it_was_started(
    views: dict[str, tuple[Facts, Facts]], name: str, variant: str
) -> None:
    cold, warm = views[variant]
    assert warm[name] == cold[name]


@pytest.mark.parametrize("name", [name for name in NAMES if name in INHERENT])
def test_what_is_said_to_differ_does(views: dict[str, tuple[Facts, Facts]], name: str) -> None:
    assert any(warm[name] != cold[name] for cold, warm in views.values())


def test_what_is_left_to_chance_differs_from_call_to_call(starts: Starts) -> None:
    found = [view for _ in range(2) for view in both_views(starts, "function", sorted(CHANCE))]
    for name in CHANCE:
        for each in zip(*(view[name] for view in found), strict=True):
            assert len(set(each)) == 4, name
