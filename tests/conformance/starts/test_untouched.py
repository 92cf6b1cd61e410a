"""Whatever a call does to itself, its host's children or its template: the next one is right."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.starts.starting import Starts, cases_of
from tests.conformance.starts.tools import havoc
from tests.workspace import Workspace

FOUND_IT = {"kills_its_template", "stops_its_template", "tells_its_template_to_end"}


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starts]:
    with Starts(Workspace(tmp_path_factory.mktemp("untouched"))) as made:
        yield made


@pytest.mark.parametrize(
    ("case", "variant"),
    [
        (name, ("function", "script")[number % 2])
        for number, name in enumerate(cases_of(havoc))
        if name not in ("state", "fills_the_disk")
    ],
)
def test_the_next_call_is_right(starts: Starts, case: str, variant: str) -> None:
    ref = starts.tool(havoc, variant)
    given = {"host": os.getpid(), "place": str(starts.place)}
    first = starts.cold(ref, {"case": "state", **given})
    expected = lasting(first.data)
    done = starts.warm(ref, {"case": case, **given})
    if case in FOUND_IT:
        assert done.data is True
    if case == "speaks_on_every_descriptor":
        assert done.data == 0
    # At once, whichever way it starts; and soon warm again.
    second = starts.rye.execute(ref, {"case": "state", **given})
    third = starts.warm(ref, {"case": "state", **given})
    assert lasting(second.data) == lasting(third.data) == expected
    assert (
        len({call_id_of(one.data) for one in (first, second, third)}) == 3
    )  # none is left from a call before


def call_id_of(data: Any) -> str:
    """The id that a process is given for its call."""
    (call_id,) = [one[1] for one in data["variables"] if one[0] == "RYE_CALL_ID"]
    return str(call_id)


def lasting(data: Any) -> dict[str, Any]:
    """What a process sees, without the id that each call has of its own."""
    lasting = [one for one in data["variables"] if one[0] != "RYE_CALL_ID"]
    return {**data, "variables": lasting}


@pytest.fixture
def on_small_disk(small_disk: Path) -> Iterator[Starts]:
    """A workspace whose project, seals and all lie on a disk that a tool can fill."""
    with Starts(Workspace(small_disk)) as made:
        yield made


@pytest.mark.parametrize("small_disk", ["2m"], indirect=True)
def test_the_next_call_is_right_on_a_disk_that_a_call_has_filled(on_small_disk: Starts) -> None:
    starts = on_small_disk
    ref = starts.tool(havoc, "function")
    disk = str(starts.workspace.project)
    starts.warmed(ref, {"case": "state"})
    assert starts.rye.execute(ref, {"case": "fills_the_disk", "disk": disk}).data == 28
    found = [starts.rye.execute(ref, {"case": "state"}, trace=True) for _ in range(3)]
    assert {done.status for done in found} == {"success"}
    starts.warmed(ref, {"case": "state"})
