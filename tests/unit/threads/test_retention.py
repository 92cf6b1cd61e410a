"""Retention in the open: the command, the API, and signed configuration behind a run's end."""

import os
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import SyncRye
from ryecore.display.sanitize import RyeWarning
from ryecore.errors import ConfigError, InputError
from ryecore.lillux import watch
from ryecore.testing import say
from tests.graphs import graph
from tests.scripted_host import ScriptedHost
from tests.workspace import Workspace

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.both_loops,
    pytest.mark.usefixtures("forked_walkers"),
]


async def aged(host: ScriptedHost, *, days: int = 40) -> str:
    done = await host.run(host.write("acme/x"))
    (path,) = (host.workspace.project / ".ai/state/threads").glob(".*/threads.db")
    with sqlite3.connect(path) as opened:
        opened.execute(
            "UPDATE threads SET status = 'completed', completed_at ="
            " strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?) WHERE thread_id = ?",
            (f"-{days} days", done.thread_id),
        )
    return str(done.thread_id)


def script(turns: int) -> list[Any]:
    return [say("done")] * (3 * turns)


async def test_the_api_shows_first_and_removes_then(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, *script(2))
    old, new = await aged(host), await aged(host, days=1)
    told: list[tuple[int, int]] = []
    async with host.open() as rye:
        dry = await rye.threads.prune(older_than="30d", dry_run=True)
        assert dry.thread_ids == (old,)
        assert dry.is_dry_run
        assert str(dry).startswith("1 thread, ")
        assert [one.thread_id for one in await rye.threads.list(all=True)] == [new, old]
        kept = await rye.threads.prune(older_than="30d", keep=2)
        assert kept.thread_ids == ()
        done = await rye.threads.prune(
            older_than="30d", on_progress=lambda gone, total: told.append((gone, total))
        )
        assert done.size_bytes == dry.size_bytes > 0
        assert told == [(1, 1)]
        assert [one.thread_id for one in await rye.threads.list(all=True)] == [new]
        assert (await rye.search("done", records=True, scope="knowledge")).total == 1
        with pytest.raises(ConfigError, match="Nothing says how long"):
            await rye.threads.prune()
        with pytest.raises(InputError):
            await rye.threads.prune(older_than="30d", keep=-1)


async def test_a_project_without_threads_has_none_to_prune(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        assert (await rye.threads.prune(older_than="30d")).thread_ids == ()
    assert not workspace.path("state/threads").exists()


async def test_signed_configuration_prunes_behind_a_run_once_a_day(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, *script(4))
    first = await aged(host)
    config = "threads: {older_than: 30d}\n"
    host.workspace.write("config/agent/retention.yaml", config)
    second = await aged(host)
    store = host.store()
    assert [one.thread_id for one in await store.registry.list_threads()] == [second]
    assert not store.folder_of(first).exists()
    third = await aged(host)
    assert [one.thread_id for one in await store.registry.list_threads()] == [third, second]
    mark = store.private_folder / "pruned-at"
    os.utime(mark, (0, 0))
    fourth = await aged(host)
    assert [one.thread_id for one in await store.registry.list_threads()] == [fourth]


async def test_each_run_prunes_something_however_long_the_looking_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = ScriptedHost(tmp_path, *script(4))
    for _ in range(2):
        await aged(host)
    host.workspace.write("config/agent/retention.yaml", "threads: {older_than: 30d}\n")
    monkeypatch.setattr("ryecore.state.pruning._MOST_S", 0.0)
    left: list[int] = []
    for _ in range(2):
        async with host.open() as rye:  # whose end waits for the pruning
            await rye.execute("directive:acme/x", thread="fork")
        async with host.open() as rye:
            # Not their ids: a thread that begins in the same second may have a pruned one's.
            left.append(len((await rye.threads.prune(older_than="30d", dry_run=True)).thread_ids))
    assert left == [1, 0]


@pytest.mark.parametrize(
    ("content", "sign", "told"),
    [
        ("threads: {older_than: 30d}\n", False, "is not signed"),
        ("threads: {older_than: soon}\n", True, "used as an age"),
        ("threads: {older_then: 30d}\n", True, "older_then is unknown. Did you mean 'older_than'"),
        ("threads: {older_than: 30d, keep: -1}\n", True, "threads.keep"),
        ("threads: 30d\n", True, "must be a mapping"),
    ],
)
async def test_configuration_that_cannot_be_used_prunes_nothing_and_warns(
    tmp_path: Path, content: str, sign: bool, told: str
) -> None:
    host = ScriptedHost(tmp_path, *script(2))
    old = await aged(host)
    host.workspace.write("config/agent/retention.yaml", content, sign=sign)
    with pytest.warns(RyeWarning, match=told):
        await aged(host)
    assert (await host.store().look(old)).ended


def test_the_synchronous_rye_prunes_too(workspace: Workspace) -> None:
    with SyncRye.open(
        workspace.project, user_space=workspace.user, environ=workspace.environ
    ) as rye:
        assert rye.threads.prune(older_than="30d").to_dict()["threads"] == 0


@pytest.mark.parametrize("kind", ["graph", "started graph", "detached graph", "detached tool"])
async def test_signed_configuration_prunes_behind_every_kind_of_run(
    tmp_path: Path, kind: str
) -> None:
    host = ScriptedHost(tmp_path, *script(1))
    old = await aged(host)
    host.workspace.write("config/agent/retention.yaml", "threads: {older_than: 30d}\n")
    tool = host.workspace.shell("acme/two", "echo 2")
    flow = graph(host.workspace, {"two": {"action": {"item_id": tool}}})
    async with host.open() as rye:
        match kind:
            case "graph":
                await rye.graphs.run(flow)
            case "started graph":
                await (await rye.graphs.start(flow)).result()
                await until_pruned(host)
            case _:
                launched = await rye.execute(flow if "graph" in kind else tool, async_=True)
                await rye.threads.wait(str(launched.to_dict()["thread_id"]))
                await until_pruned(host)
        assert old not in [one.thread_id for one in await rye.threads.list(all=True)]


@pytest.mark.parametrize("kind", ["graph", "thread"])
async def test_a_rye_that_is_closed_behind_a_run_prunes_first(tmp_path: Path, kind: str) -> None:
    """As `rye graph run` and `rye execute --thread fork` close it."""
    host = ScriptedHost(tmp_path, *script(2))
    old = await aged(host)
    host.workspace.write("config/agent/retention.yaml", "threads: {older_than: 30d}\n")
    flow = graph(host.workspace, {"end": {"type": "return", "output": 1}})
    async with host.open() as rye:
        if kind == "graph":
            await (await rye.graphs.start(flow)).result()
        else:
            await (await rye.start("directive:acme/x")).result()
    assert old not in [one.thread_id for one in await host.store().registry.list_threads()]


async def until_pruned(host: ScriptedHost) -> None:
    """Wait for the mark, which is written once a pruning is done."""
    mark = host.store().private_folder / "pruned-at"
    with anyio.fail_after(60):
        async with watch(mark) as watcher:
            while not mark.exists():
                await watcher.changed()


async def test_many_runs_look_at_the_configuration_once(tmp_path: Path) -> None:
    """Where it can't be used, that is told once, and not behind each of them."""
    host = ScriptedHost(tmp_path)
    flow = graph(host.workspace, {"end": {"type": "return", "output": 1}})
    host.workspace.write("config/agent/retention.yaml", "threads: {older_than: soon}\n")
    async with host.open() as rye:
        with pytest.warns(RyeWarning, match="could not be pruned"):
            await rye.graphs.run(flow)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await rye.graphs.run(flow)


async def test_a_warning_that_is_an_error_fails_no_run(tmp_path: Path) -> None:
    """Under `python -W error`, which raises warnings."""
    host = ScriptedHost(tmp_path, *script(1))
    flow = graph(host.workspace, {"end": {"type": "return", "output": 1}})
    host.workspace.write("config/agent/retention.yaml", "threads: {older_than: soon}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with host.open() as rye:
            assert (await rye.graphs.run(flow)).output == 1
        async with host.open() as rye:
            run = await rye.graphs.start(flow)
            assert (await run.result()).output == 1
