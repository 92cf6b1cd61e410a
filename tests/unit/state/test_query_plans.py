"""Looking at threads uses an index, so it costs the same beside ten thousand that have ended."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ryecore.state.database import Database
from ryecore.state.model import Predecessor
from ryecore.state.queries import ThreadQueries
from ryecore.state.registry import MIGRATIONS, ThreadRegistry

LOOKS: dict[str, Callable[[ThreadQueries], object]] = {
    "get_thread": lambda found: found.get_thread("acme/x/x-1"),
    "get_result": lambda found: found.get_result("acme/x/x-1"),
    "find_by_prefix": lambda found: found.find_by_prefix("acme/x/x-"),
    "list_active": lambda found: found.list_active(),
    "list_children": lambda found: found.list_children("acme/x/x-1"),
    "list_threads": lambda found: found.list_threads(),
    "list_runs": lambda found: found.list_runs(),
    "count_threads": lambda found: found.count_threads(),
    "count_runs": lambda found: found.count_threads(only_runs=True),
    "list_tree": lambda found: found.list_tree("acme/x/x-1"),
    "is_below": lambda found: found.is_below("acme/x/x-2", "acme/x/x-1"),
    "pending_requests": lambda found: found.pending_requests(),
    "get_chain": lambda found: found.get_chain("acme/x/x-1"),
    "list_following": lambda found: found.list_following("acme/x/x-1"),
}


class Planned(Database):
    """A database that notes how each query is carried out."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, MIGRATIONS)
        self.plans: list[str] = []

    def read(self, statement: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        plan = super().read(f"EXPLAIN QUERY PLAN {statement}", parameters)
        self.plans += [row["detail"] for row in plan]
        return super().read(statement, parameters)


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    database = Planned(tmp_path / "threads.db")
    registry = ThreadRegistry(database)
    registry.register("acme/x/x-1", "directive:acme/x")
    registry.register("acme/x/x-2", "directive:acme/x", "acme/x/x-1")
    registry.register("acme/x/x-3", "directive:acme/x", follows=Predecessor("acme/x/x-1", None))
    registry.register("acme/flow/flow-1", "tool:acme/flow")
    registry.register("acme/flow/y-1", "tool:acme/y")
    return database


@pytest.mark.parametrize("name", sorted(LOOKS.keys() - {"list_threads"}))
def test_no_look_reads_every_thread(planned: Planned, name: str) -> None:
    LOOKS[name](ThreadQueries(planned))
    scans = [one for one in planned.plans if "threads" in one or "SCAN t" in one]
    assert scans, planned.plans
    assert [one for one in scans if one.startswith("SCAN") and "INDEX" not in one] == []


@pytest.mark.parametrize("name", ["list_threads", "list_runs", "find_by_prefix"])
def test_a_page_of_a_list_sorts_nothing(planned: Planned, name: str) -> None:
    """What is read in the order of its index, or of its rows, ends with the page."""
    LOOKS[name](ThreadQueries(planned))
    assert [one for one in planned.plans if "TEMP B-TREE" in one] == []


def test_a_run_is_a_tools_thread_that_is_named_after_it(planned: Planned) -> None:
    found = ThreadQueries(planned)
    assert [one.thread_id for one in found.list_runs()] == ["acme/flow/flow-1"]
    assert (found.count_threads(), found.count_threads(only_runs=True)) == (5, 1)


def test_a_beginning_finds_the_ids_that_begin_with_it(planned: Planned) -> None:
    found = ThreadQueries(planned)
    assert len(found.find_by_prefix("acme/x/x-")) == 3
    assert [one.thread_id for one in found.find_by_prefix("acme/x/x-1")] == ["acme/x/x-1"]
    assert len(found.find_by_prefix("acme/", limit=2)) == 2
    assert found.find_by_prefix("acme/w") == found.find_by_prefix("acme/x/x_") == ()
