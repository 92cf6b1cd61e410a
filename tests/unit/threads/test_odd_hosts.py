"""What a thread makes of models, tools and callers that do what nobody should."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.errors import InputError, InvalidItemId, StateError, ThreadNotFound
from ryecore.llm import Price, Usage
from ryecore.testing import call, say
from ryecore.tools import tool
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio


class _Exit(BaseException):
    """Like KeyboardInterrupt and SystemExit, and no test runner takes it for its own."""


async def test_what_no_host_catches_leaves_no_thread_running(tmp_path: Path) -> None:
    def model(_: object) -> None:
        raise _Exit

    host = ScriptedHost(tmp_path, model=model)
    ref = host.write("acme/x")
    async with host.open() as rye:
        with pytest.raises(_Exit):
            await rye.execute(ref, thread="fork")
        assert await rye.threads.list() == ()
        [row] = await rye.threads.list(all=True)
        report = await rye.threads.verify(row.thread_id)
    assert row.status == "cancelled"
    assert [turn.state for turn in report.turns] == ["attested", "attested"]  # closed with the row
    account = await host.store().ledger.account(row.thread_id)
    assert (account.state == "open", account.held.tokens) == (False, 0)


@pytest.mark.parametrize("usage", [Usage(10**30, 5), Usage(1.5, 2), Usage(-90, 100)])  # type: ignore[arg-type]
async def test_counts_that_can_not_be_are_charged_as_the_most(tmp_path: Path, usage: Usage) -> None:
    host = ScriptedHost(
        tmp_path,
        model=lambda _: say("hello", usage=usage),
        price_of=lambda *_: Price("1", "5"),
    )
    done = await host.run(host.write("acme/x"))
    assert (done.ended, done.code) == ("error", "internal")
    ledger = host.store().ledger
    [charge] = await ledger.charges(done.thread_id)
    assert (charge.mark, charge.actual) == ("assumed", charge.held)
    assert (await ledger.account(done.thread_id)).total == charge.held


async def test_what_names_nothing_is_refused_as_what_it_is(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("hello"))
    ref = host.write("acme/x")
    async with host.open() as rye:
        with pytest.raises(InputError, match="names no model"):
            await rye.execute(ref, thread="fork", model="scripted/\ud800")
        for nothing in (None, 5):
            with pytest.raises(InvalidItemId):
                await rye.start(nothing)  # type: ignore[arg-type]
        await rye.execute(ref, thread="fork")
        for no_id in (None, 5, "\ud800", "../.."):
            with pytest.raises(ThreadNotFound):
                await rye.threads.show(no_id)  # type: ignore[arg-type]


async def test_a_user_space_that_can_not_be_written_is_said_and_can_be_mended(
    tmp_path: Path,
) -> None:
    host = ScriptedHost(tmp_path, say("hello"), say("hello"))
    ref = host.write("acme/x")
    in_the_way = host.workspace.user / ".ai/state"
    in_the_way.write_text("no folder")
    async with host.open() as rye:
        for start in (rye.start(ref), rye.execute(ref, thread="fork")):
            with pytest.raises(StateError, match="run key"):
                await start
        await anyio.wait_all_tasks_blocked()  # whatever runs beside them has seen it too
        in_the_way.unlink()
        assert (await rye.execute(ref, thread="fork")).ended == "completed"


async def test_the_result_says_what_was_charged_at_the_end_too(tmp_path: Path) -> None:
    host = ScriptedHost(
        tmp_path,
        say("hello", usage=Usage(10**30, 5)),
        price_of=lambda _provider, _model: Price("1", "2"),
    )
    done = await host.run(host.write("acme/x"))
    account = await host.store().ledger.account(done.thread_id)
    assert done.total == account.total
    assert done.total.spend_microcents > 0


async def test_a_price_that_is_none_names_who_gave_it(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("hello"), price_of=lambda _provider, _model: 0.5)
    done = await host.run(host.write("acme/x"))
    assert done.ended == "error"
    assert "price_of gave float" in done.error


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_thread_whose_state_is_removed_meanwhile_returns_its_result(
    tmp_path: Path, is_kept: bool
) -> None:
    state, aside = tmp_path / "project/.ai/state", tmp_path / "aside"

    @tool(inline=True)
    def remove() -> str:
        """Remove the project's state."""
        state.rename(aside)
        if not is_kept:
            shutil.rmtree(aside)
        return "done"

    following_script = (call("add", {"a": 1, "b": 2}), say("3"))
    host = ScriptedHost(tmp_path, call("remove"), say("removed"), *following_script, tools=[remove])
    ref = host.write("acme/x")
    async with host.open() as rye:
        done: Any = await rye.execute(ref, thread="fork")
        assert (done.error, done.text) == (None, "removed")
        assert not state.exists()
        following: Any = await rye.execute(ref, thread="fork")
        [row] = await rye.threads.list(all=True)
    assert (row.thread_id, row.status) == (following.thread_id, "completed")
    if is_kept:  # its rows ended where it began, too
        [database] = aside.glob("threads/.*/threads.db")
        with closing(sqlite3.connect(database)) as rows:
            assert rows.execute("SELECT status FROM threads").fetchall() == [("completed",)]
