"""Deciding again what was decided in a thread: the same, and where a record was otherwise."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ryecore.chain.trace import Trace
from ryecore.errors import StateError, ThreadConflict
from ryecore.items.refs import ItemRef
from ryecore.llm.result import Usage
from ryecore.policy.hooks import in_order
from ryecore.state.transcript_check import Record
from ryecore.state.waiting import run_blocking
from ryecore.testing import call, fail, say
from ryecore.threads.records.judge import Today, judge_records
from ryecore.threads.records.report import ReplayReport
from tests.scripted_host import TOTAL, ScriptedHost

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]

HOOKS = """
hooks:
  - id: steady
    event: after_step
    actions: [{control: continue}]
  - id: later
    event: after_step
    condition: {path: cost.turns, op: gte, value: 2}
    actions: [{control: continue}]
  - id: at-first
    event: thread_started
    condition: {path: inputs.x, op: eq, value: 4}
    actions: [{control: continue}]
  - id: at-limit
    event: limit
    actions: [{control: fail}]
  - id: at-end
    event: after_complete
    condition: {path: status, op: eq, value: completed}
    actions: [{control: continue}]
  - id: handed-over
    event: directive_return
    condition: {path: outputs.total, op: gt, value: 5}
    actions: [{control: continue}]
"""
NUMBER = '<input name="x" type="integer" required="true">A number.</input>'
TURNS = (
    call("add", {"a": 4, "b": 3}, usage=Usage(100, 10)),
    fail("unavailable"),
    call("add", {"a": 7, "b": 0}, usage=Usage(150, 10)),
    call("rye_directive_return", {"total": 7}, usage=Usage(200, 10)),
)


@pytest.fixture
async def recorded(tmp_path: Path) -> tuple[ScriptedHost, str]:
    """A thread of three turns with hooks on many events, a failed try, and an output."""
    host = ScriptedHost(tmp_path, *TURNS)
    host.workspace.write("config/agent/hooks.yaml", HOOKS)
    ref = host.write("acme/sum", "Add {input:x}.", inputs=NUMBER, outputs=TOTAL)
    done = await host.run(ref, {"x": 4})
    assert done.ended == "completed"
    return host, done.thread_id


async def replayed(host: ScriptedHost, thread_id: str) -> ReplayReport:
    async with host.workspace.open() as rye:  # no models: nothing can run
        return await rye.threads.replay(thread_id)


async def test_what_was_recorded_comes_out_the_same(recorded: tuple[ScriptedHost, str]) -> None:
    host, thread_id = recorded
    before = len(host.model.requests)
    report = await replayed(host, thread_id)
    assert report.ok, str(report)
    assert (report.differences, report.today, report.turns) == ((), (), 3)
    assert report.unchecked == ()
    assert report.decisions > 10
    assert len(host.model.requests) == before
    hooks = {one.payload["id"] for one in host.records(thread_id, "hook")}
    assert hooks == {"steady", "later", "at-first", "at-end", "handed-over"}
    assert "as recorded" in str(report)


async def test_limits_come_out_the_same(tmp_path: Path) -> None:
    host = ScriptedHost(
        tmp_path, *(call("add", {"a": 1, "b": n}, usage=Usage(400, 400)) for n in range(9))
    )
    host.workspace.write("config/agent/hooks.yaml", HOOKS)
    for limits in ('turns="2"', 'tokens="5000"'):
        done = await host.run(host.write("acme/x", limits=limits))
        assert done.ended == "error"
        report = await replayed(host, done.thread_id)
        assert report.ok, str(report)


def payload_of(change: Mapping[str, Any]) -> Callable[[Record], Record]:
    return lambda record: evolve(record, payload={**record.payload, **change})


def altered(
    records: list[Record], kind: str, change: Callable[[Record], Record | None], place: int = 0
) -> list[Record]:
    """The records with one of a type changed, or left out."""
    at = [n for n, one in enumerate(records) if one.type == kind][place]
    new = change(records[at])
    return [*records[:at], *([new] if new is not None else []), *records[at + 1 :]]


def gone(_: Record) -> None:
    return None


LIMITS = {"turns": 2, "tokens": 1_000_000, "spend": 5}
CASES: list[tuple[str, str, Callable[[Record], Record | None], int, str, int]] = [
    ("turns", "thread_started", payload_of({"limits": LIMITS}), 0, "limits", 3),
    ("tokens", "thread_started", payload_of({"limits": {"tokens": 120}}), 0, "holds", 1),
    ("capability", "thread_started", payload_of({"capabilities": []}), 0, "permissions", 1),
    ("unoffered", "thread_started", payload_of({"tools": {}}), 0, "permissions", 1),
    ("hook left out", "hook", gone, 1, "hooks", 1),
    ("hook too many", "hook", payload_of({"id": "other"}), 1, "hooks", 1),
    ("first hook", "hook", gone, 0, "hooks", 0),
    ("last hook", "hook", gone, -1, "hooks", 3),
    ("cost", "model_call_end", payload_of({"input_tokens": 99}), 0, "cost", 3),
    ("above hold", "model_call_end", payload_of({"input_tokens": 10**6}), 0, "holds", 1),
    ("outputs", "directive_return", payload_of({"outputs": {"total": 8}}), 0, "outputs", 3),
    ("no return", "directive_return", gone, 0, "outputs", 3),
]


@pytest.mark.parametrize(
    ("kind", "change", "place", "about", "turn"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
async def test_a_record_that_was_otherwise_is_a_difference(
    recorded: tuple[ScriptedHost, str],
    kind: str,
    change: Callable[[Record], Record | None],
    place: int,
    about: str,
    turn: int,
) -> None:
    host, thread_id = recorded
    report = judged(host, thread_id, altered(host.records(thread_id), kind, change, place))
    assert not report.ok
    assert (turn, about) in {(one.turn, one.about) for one in report.differences}, str(report)
    assert about in str(report)
    assert report.to_dict()["ok"] is False


def judged(host: ScriptedHost, thread_id: str, records: list[Record]) -> ReplayReport:
    planner = host.workspace.open()._parts.planner
    loaded = planner.load(ItemRef.parse("directive:acme/sum"), Trace())
    composed = planner.compose(loaded, None, Trace())
    today = Today(
        loaded.id,
        loaded.directive.body,
        frozenset(composed.permissions.capabilities),
        in_order((*composed.hooks, *planner.hooks(Trace()))),
        loaded.directive.outputs,
    )
    row = run_blocking(host.store().registry.get_thread(thread_id))
    return judge_records(
        thread_id, records, today, recorded_cost=row.cost, project_path=str(host.workspace.project)
    )


async def test_what_the_directive_no_longer_grants_is_said(
    recorded: tuple[ScriptedHost, str],
) -> None:
    host, thread_id = recorded
    host.write("acme/sum", "Add {input:x}.", inputs=NUMBER, outputs=TOTAL, permissions="")
    report = await replayed(host, thread_id)
    assert report.ok  # by what it had then
    assert [(one.turn, one.about) for one in report.today] == [
        (1, "permissions"),
        (2, "permissions"),
    ]
    assert "rye.execute.tool.host.add" in report.today[0].recomputed
    assert any("has changed since" in one for one in report.unchecked)
    host.workspace.path("directives/acme/sum.md").unlink()
    report = await replayed(host, thread_id)
    assert report.ok
    assert any("today's permissions" in one for one in report.unchecked)


async def test_the_built_in_tools_are_judged_by_what_they_name(tmp_path: Path) -> None:
    host = ScriptedHost(
        tmp_path,
        call("rye_fetch", {"item_id": "knowledge:acme/tides"}),
        call("rye_fetch", {"query": "high", "scope": "knowledge"}),
        call("rye_execute", {"item_id": "tool:acme/none"}),
        say("done"),
    )
    host.workspace.write("knowledge/acme/tides.md", "High.\n")
    ref = host.write("acme/x", permissions="<fetch><knowledge>acme/*</knowledge></fetch>")
    done = await host.run(ref)
    report = await replayed(host, done.thread_id)
    assert report.ok, str(report)
    records = altered(
        host.records(done.thread_id), "thread_started", payload_of({"capabilities": []})
    )
    row = await host.store().registry.get_thread(done.thread_id)
    found = judge_records(
        done.thread_id, records, None, recorded_cost=row.cost, project_path="/"
    ).differences
    assert [one.turn for one in found] == [1, 2]  # what failed needed nothing
    assert "rye.fetch.knowledge.acme.tides" in found[0].recomputed


async def test_an_altered_transcript_is_not_replayed(recorded: tuple[ScriptedHost, str]) -> None:
    host, thread_id = recorded
    path = host.workspace.path(f"state/threads/{thread_id}/transcript.jsonl")
    path.write_text(path.read_text().replace('"total":7', '"total":8').replace('"a":4', '"a":5'))
    with pytest.raises(StateError, match="altered"):
        await replayed(host, thread_id)


async def test_a_tool_s_thread_has_nothing_to_replay(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path)
    ref = host.workspace.shell("acme/work", "true")
    async with host.workspace.open() as rye:
        launched = await rye.execute(ref, async_=True)
        thread_id = launched.to_dict()["thread_id"]
        assert isinstance(thread_id, str)
        await rye.threads.wait(thread_id)
        for ask in (rye.threads.replay, rye.threads.verify):
            with pytest.raises(ThreadConflict, match="no transcript"):
                await ask(thread_id)
