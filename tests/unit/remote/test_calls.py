"""Inline tools on a node: a real one, over HTTP on loopback."""

import pytest

from ryecore.errors import RemoteError
from tests.remotes import connect, name_remote
from tests.served_node import ServedNode
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


async def test_a_tool_runs_on_the_node_with_a_result_like_a_local_one(
    workspace: Workspace, node: ServedNode
) -> None:
    connect(workspace, node)
    ref = workspace.python(
        "acme/sum",
        "def execute(params, project_path):\n    return {'sum': params['a'] + params['b']}",
    )
    async with workspace.open() as rye:
        local = await rye.execute(ref, {"a": 1, "b": 2})
        done = await rye.execute(ref, {"a": 1, "b": 2}, target="remote:gpu")
    assert (done.status, done.item_id, done.data) == ("success", ref, {"sum": 3})
    document, same = done.to_dict(), local.to_dict()
    assert document.keys() == same.keys()
    assert document["chain"] == same["chain"]
    assert document["metadata"]["remote"] == "gpu"  # type: ignore[index]
    assert "acme/sum" in str(done)


async def test_an_unknown_caller_is_refused_with_the_next_step(
    workspace: Workspace, node: ServedNode
) -> None:
    name_remote(workspace, node.url, node.identity.key.public)
    ref = workspace.shell("acme/a", "true")
    async with workspace.open() as rye:
        with pytest.raises(RemoteError, match="rye node allow") as caught:
            await rye.execute(ref, target="remote:gpu")
    assert (caught.value.problem, caught.value.status) == ("unauthorized", 401)
    assert workspace.key.public.fingerprint in str(caught.value.next_step)
