"""What the handle of a thread shows, what the ledger tells, and the same with calls that block."""

from contextlib import AbstractContextManager
from pathlib import Path

import anyio.to_thread
import pytest

from ryecore import Rye, SyncRye
from ryecore.errors import ThreadConflict, ThreadNotFound
from ryecore.llm import Usage
from ryecore.testing import call, say
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio


async def test_a_thread_is_shown_with_what_it_has_used_of_its_limits(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), say("3"))
    ref = host.write("acme/sum", limits='turns="4"')
    async with host.open() as rye:
        thread = await rye.start(ref)
        await thread.result()
        shown, narrow = str(thread), (await thread.render(width=30)).plain()
        html = thread._repr_html_()
    assert "✓ acme/sum" in shown
    assert "2/4" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert max(map(len, narrow.splitlines())) <= 30
    assert "acme/sum" in html
    assert repr(thread) == f"Thread({thread.thread_id!r})"


async def test_a_notebook_shows_a_thread_without_waiting_or_failing(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), say("3"))
    ref = host.write("acme/sum", limits='turns="4"')
    async with host.open() as rye:
        thread = await rye.start(ref)
        done = await thread.result()
        html = thread._repr_html_()
        assert html.count("<svg ") == 1
        assert 'class="n completed"' in html
        assert "2/4 turns" in html
        assert "2 turns" in done._repr_html_()

        with host_writes(rye):  # somebody writes, for as long as it takes
            shown = await anyio.to_thread.run_sync(thread._repr_html_)
        assert "busy" in shown
        assert thread.thread_id in shown
    shown = thread._repr_html_()
    assert "<svg" not in shown
    assert thread.thread_id in shown


def host_writes(rye: Rye) -> AbstractContextManager[object]:
    """A transaction that stays open."""
    store = rye.threads._store()
    assert store is not None
    return store._database.write()


async def test_the_ledger_tells_what_each_request_held_and_cost(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}, usage=Usage(90, 10)), say("3"))
    ref = host.write("acme/sum")
    async with host.open() as rye:
        with pytest.raises(ThreadNotFound):
            await rye.threads.charges("acme/sum/sum-1")
        done = await rye.execute(ref, thread="fork")
        first, second = await rye.threads.charges(done.thread_id)
        account = await rye.threads.account(done.thread_id)
    assert (first.actual.tokens, first.mark) == (100, "counted")
    assert second.mark == "estimated"  # nobody counted it
    assert 0 < second.actual.tokens < second.held.tokens
    assert account.total == first.actual + second.actual == done.total


def test_the_calls_of_threads_can_block(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), say("3"), say("4"), say("5"))
    ref = host.write("acme/sum")
    with SyncRye.open(
        host.workspace.project, user_space=host.workspace.user, environ=host.workspace.environ,
        agent=host.deps,
    ) as rye:  # fmt: skip
        thread = rye.start(ref)
        done = thread.result()
        threads = rye.threads
        assert (done.text, threads.thread(thread.thread_id).status()) == ("3", "completed")
        assert str(thread) == str(threads.thread(thread.thread_id))
        assert threads.account(thread.thread_id).total == done.total
        assert threads.verify(thread.thread_id).ok
        assert threads.replay(thread.thread_id).to_dict()["differences"] == []
        resumed = threads.resume(thread.thread_id, "And one more?")
        assert resumed.text == "4"
        forked = threads.fork(thread.thread_id, at=1, message="And two more?")
        assert forked.text == "5"
        with pytest.raises(ThreadConflict):
            threads.hand_off(thread.thread_id)
