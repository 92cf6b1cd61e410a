"""Tools that were broken off: a plain resume doesn't do again what may have had its effect."""

from pathlib import Path
from typing import Any

import pytest

from ryecore.chain.primitives import EFFECT_UNKNOWN
from ryecore.errors import StateError
from tests.graph_crashing import MARK, marks
from tests.graphs import graph
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]

OPEN = 'test -e "$1/../open" && exec echo 1'
"""Once the gate is open, the tool ends well."""

BROKEN_OFF = {
    "killed": ("kill -9 $$", {}),
    "terminated": ("kill -TERM $$", {}),
    "killed, with an error of its own": ("""echo '{"error": "no"}'; kill -9 $$""", {}),
    "its timeout": ("exec sleep 300", {"timeout_s": 0.5}),
    "its timeout, ended by itself": ("trap 'exit 3' TERM; sleep 300 & wait", {"timeout_s": 0.5}),
    "it says so itself": ("""echo '{"success": false, "effect_unknown": true}'""", {}),
}


def flow(workspace: Workspace, script: str, item_id: str = "acme/flow", **node: object) -> str:
    """A graph of one tool that leaves a mark, and then does as the script says."""
    workspace.shell("acme/pay", f'{MARK}\necho $RYE_CALL_ID >> "$1/../ids"\n{OPEN}\n{script}')
    action = {"item_id": "tool:acme/pay", "params": {"n": "pay"}}
    return graph(workspace, {"pay": {"action": action, **node}}, item_id)


@pytest.mark.parametrize("how", BROKEN_OFF)
async def test_a_tool_that_was_broken_off_is_not_done_again_by_itself(
    workspace: Workspace, how: str
) -> None:
    script, node = BROKEN_OFF[how]
    async with workspace.open() as rye:
        failed = await rye.graphs.run(flow(workspace, script, **node))
        assert (failed.ended, failed.effect_unknown) == ("error", True)
        assert EFFECT_UNKNOWN in str(failed.error)
        assert failed.run_status is not None
        assert failed.run_status.nodes["pay"].effect_unknown
        shown = (await rye.graphs.show(failed.run_id)).render().plain()
        assert "effect unknown" in shown
        assert "--rerun to do it again, or --result JSON" in shown
        (workspace.root / "open").touch()
        with pytest.raises(StateError, match="'pay' interrupted") as caught:
            await rye.graphs.resume(failed.run_id)
        assert "--rerun" in caught.value.next_step
        assert marks(workspace.root) == {"pay": 1}
        done = await rye.graphs.resume(failed.run_id, rerun=True)
    assert done.ended == "completed"
    assert marks(workspace.root) == {"pay": 2}
    first, second = (workspace.root / "ids").read_text().split()
    assert first == second


@pytest.mark.parametrize(
    ("script", "node"),
    [
        ("exit 3", {}),
        ("""echo '{"success": false, "error": "no"}'""", {}),
        ("exit 137", {}),
        ("kill -9 $$", {"cache_result": True}),
    ],
)
async def test_what_is_known_to_have_failed_or_may_be_repeated_is_done_again(
    workspace: Workspace, script: str, node: dict[str, Any]
) -> None:
    async with workspace.open() as rye:
        failed = await rye.graphs.run(flow(workspace, script, **node))
        (workspace.root / "open").touch()
        done = await rye.graphs.resume(failed.run_id)
    assert (failed.ended, done.ended) == ("error", "completed")
    assert marks(workspace.root) == {"pay": 2}


async def test_what_came_of_it_is_taken_from_whoever_has_found_out(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        failed = await rye.graphs.run(flow(workspace, "kill -9 $$"))
        done = await rye.graphs.resume(failed.run_id, result={"paid": True})
    assert done.ended == "completed"
    assert marks(workspace.root) == {"pay": 1}


async def test_of_members_those_that_were_broken_off_are_not_done_again(
    workspace: Workspace,
) -> None:
    workspace.shell(
        "acme/pay",
        f"{MARK}\n{OPEN}\ncase $said in *0*) echo 0;; *1*) exit 3;; *) kill -9 $$;; esac",
    )
    action = {"item_id": "tool:acme/pay", "params": {"n": "${one}"}}
    nodes = {"each": {"type": "foreach", "over": "${state.all}", "as": "one", "action": action}}
    ref = graph(workspace, nodes, state={"all": ["0", "2", "1"]})
    async with workspace.open() as rye:
        failed = await rye.graphs.run(ref)
        assert (failed.ended, failed.effect_unknown) == ("error", True)
        (workspace.root / "open").touch()
        with pytest.raises(StateError, match="member 1 of 'each' interrupted") as caught:
            await rye.graphs.resume(failed.run_id)
        assert caught.value.facts["members"] == (1,)
        done = await rye.graphs.resume(failed.run_id, members={1: "by hand"})
    assert done.ended == "completed"
    assert marks(workspace.root) == {"0": 1, "2": 1, "1": 1}


@pytest.mark.parametrize("how", ["action", "tool of its own"])
async def test_a_graph_within_a_graph_passes_on_that_it_was_broken_off(
    workspace: Workspace, how: str
) -> None:
    inner = flow(workspace, "kill -9 $$", "acme/inner")
    outer = graph(workspace, {"inner": {"action": {"item_id": inner}}}, "acme/outer")
    async with workspace.open() as rye:
        if how == "action":
            failed = await rye.graphs.run(outer)
            with pytest.raises(StateError, match="'inner' interrupted"):
                await rye.graphs.resume(failed.run_id)
        else:
            done = await rye.execute(outer)
            assert done.effect_unknown
            assert done.to_dict()["metadata"]["effect_unknown"] is True
            assert EFFECT_UNKNOWN in str(done.error)
    assert marks(workspace.root) == {"pay": 1}


async def test_the_bash_tool_says_it_of_a_command_that_it_broke_off(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    async with workspace.open() as rye:
        slow = await rye.execute("tool:rye/bash", {"command": "sleep 300", "timeout": 1})
        killed = await rye.execute("tool:rye/bash", {"command": "kill -9 $$"})
        failed = await rye.execute("tool:rye/bash", {"command": "exit 3"})
    assert [one.effect_unknown for one in (slow, killed, failed)] == [True, True, False]
