import json
import os
import time
from pathlib import Path

import pytest

from ryecore import SigningKey
from ryecore.convert.strict import WIRE
from ryecore.node.callers import Caller, Callers
from ryecore.node.content import NodeContent
from ryecore.node.database import open_node_database
from ryecore.node.run_table import RunRow, RunTable
from ryecore.node.upkeep import remove_unused
from ryecore.remote.protocol.models import ExecuteBody
from ryecore.remote.protocol.snapshots import Snapshot, SnapshotFile
from ryecore.state.database import Database
from tests.served_node import whole

pytestmark = pytest.mark.anyio

_NODE = SigningKey.generate()
_DAY_S = 86_400.0


@pytest.fixture
def content(tmp_path: Path) -> NodeContent:
    return NodeContent(tmp_path, max_object_bytes=2**30, min_free_bytes=0)


@pytest.fixture
def database(tmp_path: Path):
    opened = open_node_database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def callers(tmp_path: Path) -> Callers:
    return Callers(tmp_path, _NODE)


def _push(content: NodeContent, caller: Caller, *contents: bytes) -> Snapshot:
    files = [
        SnapshotFile("project", f"{at}", whole(one).sha256, len(one))
        for at, one in enumerate(contents)
    ]
    snapshot = Snapshot(tuple(files))
    of_caller = content.of(caller)
    of_caller.take(snapshot)
    of_caller.store(map(whole, contents))
    assert of_caller.snapshot(snapshot.id) is not None
    return snapshot


def _age(folder: Path, days: float) -> None:
    for path, _, names in os.walk(folder):
        for name in names:
            os.utime(Path(path, name), (time.time() - days * _DAY_S,) * 2)


async def _insert_run(
    database: Database, caller: Caller, snapshot: str, thread_id: str, *, ended_at: str | None
) -> None:
    async with database.writing() as run:
        run.execute(
            "INSERT INTO runs (caller, thread_id, item_id, snapshot, request_sha256, request,"
            " created_at, ended_at, spend_microcents) VALUES (?, ?, '', ?, '', '', '', ?, 7)",
            (caller.fingerprint, thread_id, snapshot, ended_at),
        )
        run.execute(
            "INSERT INTO events VALUES (?, ?, 1, 'status', '{}')", (caller.fingerprint, thread_id)
        )


async def test_what_was_unused_goes_and_what_is_used_stays(
    content: NodeContent, database: Database, callers: Callers
) -> None:
    caller = Caller(SigningKey.generate().public)
    callers.allow(caller)
    of_caller = content.of(caller)
    old = _push(content, caller, b"old", b"shared")
    running = _push(content, caller, b"running")
    result_of_old_run = of_caller.put(b"result")
    await _insert_run(database, caller, running.id, "r", ended_at=None)
    _age(of_caller.folder, 31)
    new = _push(content, caller, b"new", b"shared")
    result_of_new_run = of_caller.put(b"another result")

    await remove_unused(database, content, callers, time.time() - 30 * _DAY_S)

    assert of_caller.snapshot(old.id) is None
    assert of_caller.snapshot(new.id) == new
    assert of_caller.snapshot(running.id) == running
    kept = {b"old": False, b"shared": True, b"running": True, b"new": True}
    for one, stays in kept.items():
        assert (of_caller.size_of(whole(one).sha256) is not None) is stays, one
    assert of_caller.size_of(result_of_old_run) is None
    assert of_caller.size_of(result_of_new_run) is not None
    assert len(of_caller.take(old)) == 1  # b"shared" is still here


async def test_a_snapshot_that_is_used_again_stays(
    content: NodeContent, database: Database, callers: Callers
) -> None:
    caller = Caller(SigningKey.generate().public)
    callers.allow(caller)
    snapshot = _push(content, caller, b"one")
    _age(content.of(caller).folder, 31)
    assert content.of(caller).snapshot(snapshot.id) is not None

    await remove_unused(database, content, callers, time.time() - 30 * _DAY_S)

    assert content.of(caller).take(snapshot) == ()


async def test_ended_runs_go_with_their_events_and_their_cost_is_remembered(
    content: NodeContent, database: Database, callers: Callers
) -> None:
    caller = Caller(SigningKey.generate().public)
    for name, ended_at in (
        ("old", "2020-01-01T00:00:00Z"), ("older", "2019-01-01T00:00:00Z"),
        ("new", "2999-01-01T00:00:00Z"), ("running", None),
    ):  # fmt: skip
        await _insert_run(database, caller, "s", name, ended_at=ended_at)

    for _ in range(2):
        await remove_unused(database, content, callers, time.time() - 30 * _DAY_S)

    for table in ("runs", "events"):
        rows = await database.fetch(f"SELECT thread_id FROM {table} ORDER BY thread_id")
        assert [row[0] for row in rows] == ["new", "running"], table
    assert await RunTable(database).spent_microcents(caller.fingerprint) == 28


async def test_the_folder_of_a_revoked_caller_goes_once_it_is_unused(
    content: NodeContent, database: Database, callers: Callers
) -> None:
    revoked, other = (Caller(SigningKey.generate().public) for _ in range(2))
    callers.allow(other)
    _push(content, revoked, b"x")
    _push(content, other, b"x")
    folders = [content.of(one).folder for one in (revoked, other)]
    (folders[0] / "sealed").mkdir()

    await remove_unused(database, content, callers, time.time() - 30 * _DAY_S)
    before = [one.exists() for one in folders]
    for one in folders:
        _age(one, 31)
    await remove_unused(database, content, callers, time.time() - 30 * _DAY_S)

    assert before == [True, True]
    assert [one.exists() for one in folders] == [False, True]
    _push(content, revoked, b"y")  # allowed again


async def test_bytes_of_runs_in_the_database_count(
    content: NodeContent, database: Database, callers: Callers
) -> None:
    caller = Caller(SigningKey.generate().public)
    callers.allow(caller)
    body = ExecuteBody("one", "tool:x", {"x": "y" * 5000}, "inline", "s", "1")
    of_caller, table = content.of(caller), RunTable(database)
    before = of_caller.quota.used_bytes

    request = json.dumps(WIRE.write(body))
    await table.insert(RunRow.of(caller.fingerprint, body, "sha"), request)
    report = {"result": "z" * 3000}
    assert await table.end(caller.fingerprint, "one", "completed", report, 0) > 3000
    await remove_unused(database, content, callers, time.time() - 30 * _DAY_S)

    assert 8000 < of_caller.quota.used_bytes - before < 10_000


async def test_no_question_about_many_runs_reads_their_rows(database: Database) -> None:
    table, asked = RunTable(database), list[str]()
    database._connection.set_trace_callback(asked.append)
    await table.spent_microcents("a")
    await table.count_running("a")
    await table.count_ended()
    await table.stored_bytes()
    database._connection.set_trace_callback(None)

    for query in asked:
        plan = await database.fetch(f"EXPLAIN QUERY PLAN {query}")
        steps = [row["detail"] for row in plan if "runs" in row["detail"]]
        assert steps, query
        assert all("COVERING INDEX" in one for one in steps), (query, steps)
