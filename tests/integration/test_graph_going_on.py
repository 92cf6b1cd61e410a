"""A run that was stopped, or has failed, is gone on with where it stood."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ryecore.errors import StateError
from tests.graphs import graph
from tests.workspace import Workspace


def done_in(path: Path) -> Counter[str]:
    """What the tools were given, and how often."""
    return Counter(path.read_text().split("\n")) - Counter([""])


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    path = tmp_path / "effects"
    path.touch()
    return path


def each(workspace: Workspace, script: str, effects: Path, **fields: Any) -> str:
    """A graph that goes over four members, of which the third needs a gate that is shut."""
    gate = effects.with_name("gate")
    text = f'read -r said <<< "$(cat)"; echo "$said" >> "{effects}"\n' + (
        f'case "$said" in *2*) test -e "{gate}" || {script};; esac; echo "$said"'
    )
    workspace.shell("acme/one", text)
    action = {"item_id": "tool:acme/one", "params": {"n": "${one}"}}
    nodes = {
        "each": {
            "type": "foreach",
            "over": "${state.all}",
            "as": "one",
            "action": action,
            "collect": "done",
            "next": "end",
            **fields,
        },
        "end": {"type": "return", "output": "${state.done}"},
    }
    return graph(workspace, nodes, state={"all": [0, 1, 2, 3]})


@pytest.mark.anyio
async def test_members_that_are_done_are_not_done_again_after_a_failure(
    workspace: Workspace, effects: Path
) -> None:
    ref = each(workspace, "exit 3", effects)
    async with workspace.open() as rye:
        failed = await rye.graphs.run(ref)
        assert failed.status == "error"
        effects.with_name("gate").touch()
        done = await rye.graphs.resume(failed.run_id)
    assert done.output == [{"n": n} for n in range(4)]
    # The third one failed, so it was called twice; all others once.
    assert done_in(effects) == {'{"n": 0}': 1, '{"n": 1}': 1, '{"n": 2}': 2, '{"n": 3}': 1}


@pytest.mark.anyio
async def test_a_member_that_was_broken_off_is_not_done_again_by_itself(
    workspace: Workspace, effects: Path
) -> None:
    ref = each(workspace, "exec sleep 60", effects)
    async with workspace.open() as rye:
        run = await rye.graphs.start(ref)
        async for event in run.events():
            if event.type == "item_started" and event.payload["index"] == 2:
                await run.cancel()
        stopped = await run.result()
        assert stopped.ended == "cancelled"
        effects.with_name("gate").touch()
        with pytest.raises(StateError, match="member 2 of 'each'") as refused:
            await rye.graphs.resume(run.run_id)
        shown = await rye.graphs.show(run.run_id)
        options = "--rerun to do it again, or --member 2=JSON where it was done"
        assert shown.next_step == f"rye graph resume {run.run_id} {options}"
        assert f"Then resume it with {options}." in refused.value.next_step
        assert shown.to_dict()["unknown_members"] == [2]
        done = await rye.graphs.resume(run.run_id, rerun=True)
    assert done.output == [{"n": n} for n in range(4)]
    assert {said: count for said, count in done_in(effects).items() if '2' not in said} == {
        '{"n": 0}': 1, '{"n": 1}': 1, '{"n": 3}': 1,
    }  # fmt: skip


@pytest.mark.anyio
async def test_whoever_knows_what_came_of_a_member_says_so(
    workspace: Workspace, effects: Path
) -> None:
    ref = each(workspace, "exec sleep 60", effects)
    async with workspace.open() as rye:
        run = await rye.graphs.start(ref)
        async for event in run.events():
            if event.type == "item_started" and event.payload["index"] == 2:
                await run.cancel()
        await run.result()
        done = await rye.graphs.resume(run.run_id, result="by hand")
    assert done.output == [{"n": 0}, {"n": 1}, "by hand", {"n": 3}]


@pytest.mark.anyio
async def test_an_author_may_let_a_node_be_done_again(workspace: Workspace, effects: Path) -> None:
    ref = each(workspace, "exec sleep 60", effects, retry=2)
    async with workspace.open() as rye:
        run = await rye.graphs.start(ref)
        async for event in run.events():
            if event.type == "item_started" and event.payload["index"] == 2:
                await run.cancel()
        await run.result()
        effects.with_name("gate").touch()
        done = await rye.graphs.resume(run.run_id)
    assert done.output == [{"n": n} for n in range(4)]


@pytest.mark.anyio
async def test_what_is_carried_over_a_second_death_is_still_known(
    workspace: Workspace, effects: Path
) -> None:
    ref = each(workspace, "exit 3", effects)
    async with workspace.open() as rye:
        first = await rye.graphs.run(ref)
        second = await rye.graphs.resume(first.run_id)
        assert second.status == "error"
        effects.with_name("gate").touch()
        third = await rye.graphs.resume(second.run_id)
    assert third.output == [{"n": n} for n in range(4)]
    assert done_in(effects)['{"n": 0}'] == 1
