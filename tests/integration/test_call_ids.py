"""A tool knows its call by an id, which is the same where the call is made once more."""

import pytest

from ryecore import CallContext
from tests.graphs import graph
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]
PATIENCE_S = 60.0

SAID = "import os\ndef execute(params, project):\n  return os.environ['RYE_CALL_ID']"


@pytest.fixture
def anyio_backend() -> str:
    """Nothing here asks anything of the loop."""
    return "asyncio"


async def test_a_tool_gets_an_id_of_its_call_cold_and_warm(workspace: Workspace) -> None:
    tool = workspace.python("acme/say", SAID)
    shell = workspace.shell("acme/sh", 'printf \'"%s"\' "$RYE_CALL_ID"')
    async with workspace.open() as rye:
        first, same = CallContext(call_id="first"), CallContext(call_id="first")
        for ref in (tool, shell):
            ids = []
            for ctx in (first, same, CallContext(), CallContext()):
                for x in (1, 2):
                    ids.append((await rye.execute(ref, {"x": x}, ctx=ctx)).data)
            assert all(isinstance(one, str) and len(one) == 32 for one in ids), ids
            assert ids[:2] == ids[2:4]
            assert len(set(ids)) == 6  # other parameters, or another call: another id
        warm = [(await rye.execute(tool, {"x": 1}, ctx=first)).data for _ in range(30)]
    assert set(warm) == {warm[0]}


async def test_a_graph_that_died_makes_a_call_once_more_with_the_id_that_it_had(
    workspace: Workspace,
) -> None:
    said = workspace.root / "ids"
    once = f"mkdir {workspace.root}/done 2>/dev/null || exit 0; kill -9 $PPID"
    workspace.shell("acme/once", f"cat > /dev/null; echo $RYE_CALL_ID >> {said}; {once}")
    call = {"item_id": "tool:acme/once", "params": {"n": 1}}
    nodes = {
        "first": {"action": call, "next": "second"},
        "second": {"type": "foreach", "over": "${inputs.members}", "as": "m", "action": call},
    }
    ref = graph(workspace, nodes, inputs={"members": {"type": "array", "default": [1, 1]}})
    async with workspace.open() as rye:
        done = await rye.execute(ref)
        assert not done.success
        (row,) = await rye.threads.list(all=True)
        again = await rye.graphs.resume(row.thread_id, rerun=True)
        assert again.success, again.error
        ids = said.read_text().split()
        assert ids[0] == ids[1]
        assert len(set(ids)) == 3  # each member's call is another one
        redone = await rye.graphs.resume(row.thread_id, at=0)
        assert redone.success
    redone_ids = said.read_text().split()[len(ids) :]
    assert len({*ids, *redone_ids}) == 6  # what is done anew on purpose is another call
