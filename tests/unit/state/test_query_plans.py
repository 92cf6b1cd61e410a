"""Looking at threads uses an index, so it costs the same beside ten thousand that have ended."""

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from ryecore.state.database import Database
from ryecore.state.model import Predecessor
from ryecore.state.schema import MIGRATIONS
from ryecore.state.sql_registry import SqlRegistry
from ryecore.state.waiting import run_blocking

LOOKS: dict[str, Callable[[SqlRegistry], Coroutine[Any, Any, object]]] = {
    "get_thread": lambda found: found.get_thread("acme/x/x-1"),
    "get_result": lambda found: found.get_result("acme/x/x-1"),
    "find_by_prefix": lambda found: found.find_by_prefix("acme/x/x-"),
    "list_active": lambda found: found.list_active(),
    "list_children": lambda found: found.list_children("acme/x/x-1"),
    "list_threads": lambda found: found.list_threads(),
    "list_runs": lambda found: found.list_runs(),
    "count_threads": lambda found: found.count_threads(),
    "count_runs": lambda found: found.count_threads(only_runs=True),
    "count_open": lambda found: found.count_open({"tenant": "acme"}),
    "list_tree": lambda found: found.list_tree("acme/x/x-1"),
    "is_below": lambda found: found.is_below("acme/x/x-2", "acme/x/x-1"),
    "pending_requests": lambda found: found.pending_requests(),
    "get_chain": lambda found: found.get_chain("acme/x/x-1"),
    "list_died": lambda found: found.list_died(),
    "list_following": lambda found: found.list_following("acme/x/x-1"),
}


class Planned(Database):
    """A database that notes how each query is carried out."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, MIGRATIONS)
        self.plans: list[str] = []

    async def fetch(self, query: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        plan = await super().fetch(f"EXPLAIN QUERY PLAN {query}", parameters)
        self.plans += [row["detail"] for row in plan]
        return await super().fetch(query, parameters)


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    database = Planned(tmp_path / "threads.db")
    registry = SqlRegistry(database)
    run_blocking(registry.register("acme/x/x-1", "directive:acme/x"))
    run_blocking(registry.register("acme/x/x-2", "directive:acme/x", "acme/x/x-1"))
    run_blocking(
        registry.register("acme/x/x-3", "directive:acme/x", follows=Predecessor("acme/x/x-1", None))
    )
    run_blocking(registry.register("acme/flow/flow-1", "tool:acme/flow"))
    run_blocking(registry.register("acme/flow/y-1", "tool:acme/y"))
    return database


@pytest.mark.parametrize("name", sorted(LOOKS.keys() - {"list_threads"}))
def test_no_look_reads_every_thread(planned: Planned, name: str) -> None:
    run_blocking(LOOKS[name](SqlRegistry(planned)))
    scans = [one for one in planned.plans if "threads" in one or "SCAN t" in one]
    assert scans, planned.plans
    assert [one for one in scans if one.startswith("SCAN") and "INDEX" not in one] == []


def test_only_results_that_tell_of_a_death_are_read_for_the_dead(planned: Planned) -> None:
    """Not those of all threads that failed."""
    run_blocking(SqlRegistry(planned).list_died())
    assert planned.plans[0] == "SCAN results USING INDEX results_of_dead"


@pytest.mark.parametrize("name", ["list_threads", "list_runs", "find_by_prefix", "list_active"])
def test_a_page_of_a_list_sorts_nothing(planned: Planned, name: str) -> None:
    """What is read in the order of its index, or of its rows, ends with the page."""
    run_blocking(LOOKS[name](SqlRegistry(planned)))
    assert [one for one in planned.plans if "TEMP B-TREE" in one] == []
