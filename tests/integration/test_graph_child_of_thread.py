"""A model that runs a graph: the run is a child of its thread. And who may claim a run."""

import json
import sys

import anyio
import pytest

from ryecore.actions.payload import Payload
from ryecore.actions.settings import Settings
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import built_in_space
from ryecore.lillux import ProcessSpec, run_process
from ryecore.policy import CallContext
from ryecore.runs.request import GraphOptions, RunRequest, register_run
from tests.detached import PATIENCE_S, until_printed
from tests.graphs import graph
from tests.loops import ON_BOTH_LOOPS
from tests.thread_host import COST, FACTORY, PlannedWorkspace
from tests.warm_hosts import is_alive
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


@pytest.fixture
def anyio_backend() -> str:
    """The child's loop is its own, whatever its host runs on."""
    return "asyncio"


WRITING = {
    "write": {"type": "agent", "agent_ref": "writer", "prompt_template": "Say PLAN\n[]",
              "assign": {"text": "${result}"}, "next": "done"},
    "done": {"type": "return", "output": "${state.text}"},
}  # fmt: skip
WRITER = {"writer": {"provider": "scripted", "model": "m"}}


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


async def test_a_models_graph_is_a_child_of_its_thread_and_spends_its_money(
    planned: PlannedWorkspace,
) -> None:
    graph(planned.workspace, WRITING, agents=WRITER, state={"text": ""})
    ref = planned.write(
        "boss", ["acme_flow", {}], limits='turns="4" spend="1.0" depth="3" spawns="2"'
    )
    async with planned.open() as rye:
        done = await rye.execute(ref, thread="fork")
    assert done.status == "success", done
    store = planned.store()
    (thread,) = [row for row in await store.registry.list_threads() if row.parent_id is None]
    (run,) = await store.registry.list_children(thread.thread_id)
    assert (run.item_id, run.status, thread.spawn_count) == ("tool:acme/flow", "completed", 1)
    account = await store.ledger.account(thread.thread_id)
    assert (await store.ledger.account(run.thread_id)).own.spend_microcents == COST
    assert account.children.spend_microcents == COST
    assert account.own.spend_microcents == 2 * COST
    store.close()


@ON_BOTH_LOOPS
async def test_a_thread_that_is_stopped_takes_its_graph_along(planned: PlannedWorkspace) -> None:
    workspace = planned.workspace
    workspace.shell("acme/hang", f"echo $PPID $$ end >> {workspace.root}/pids\nexec sleep 300")
    graph(workspace, {"stay": {"action": {"item_id": "tool:acme/hang"}}})
    ref = planned.write("boss", ["acme_flow", {}], limits='turns="4" depth="3"')
    async with planned.open() as rye:
        thread = await rye.start(ref)
        said = await until_printed(workspace.root / "pids", "end")
        await thread.cancel()
        with anyio.fail_after(PATIENCE_S):
            result = await thread.result()
    assert result.ended == "cancelled"
    store = planned.store()
    (run,) = await store.registry.list_children(thread.thread_id)
    assert run.status == "cancelled"
    store.close()
    assert not any(is_alive(int(pid)) for pid in said.split()[:2])


async def test_a_thread_may_not_do_by_a_graph_what_it_may_not_do_itself(
    planned: PlannedWorkspace,
) -> None:
    workspace = planned.workspace
    workspace.shell("acme/secret", f"touch {workspace.root}/touched")
    nodes = {"do": {"action": {"item_id": "tool:acme/secret"}}}
    graph(workspace, nodes)
    permissions = "<execute><tool>acme/flow</tool></execute>"
    ref = planned.write("boss", ["acme_flow", {"capabilities": ["*"]}], permissions=permissions,
                        limits='turns="4" depth="3"')  # fmt: skip
    async with planned.open() as rye:
        done = await rye.execute(ref, thread="fork")
    assert "rye.execute.tool.acme.secret" in json.dumps(done.to_dict())
    assert not (workspace.root / "touched").exists()


@pytest.mark.parametrize("is_right", [True, False])
async def test_a_run_is_claimed_once_and_with_its_own_token(
    planned: PlannedWorkspace, is_right: bool
) -> None:
    workspace = planned.workspace
    ref = graph(workspace, {"done": {"type": "return", "output": 1}})
    async with planned.open() as rye:
        plan = (await rye.execute(ref, dry_run=True)).plan
    assert plan is not None
    store = planned.store()
    run_id = (await register_run(store.registry, RunRequest(ItemRef.parse(ref)), None)).thread_id
    token = await store.registry.mint_token(run_id)
    digest = json.loads(plan.stdin)["digest"]
    payload = Payload(
        _settings(planned),
        run_id,
        RunRequest(ItemRef.parse(ref), graph=GraphOptions(digest)),
        CallContext(),
        token if is_right else "another",
    )
    assert token not in repr(payload)
    spec = ProcessSpec(sys.executable, plan.args, cwd=plan.cwd, env=plan.env,
                       stdin=payload.to_bytes())  # fmt: skip
    done = await run_process(spec)
    said = json.loads(done.stdout)
    if not is_right:
        assert (done.exit_code, said["success"]) == (1, False)
        assert "token" in said["error"]
        assert (await store.registry.get_thread(run_id)).status == "created"
    else:
        assert (done.exit_code, said["output"]) == (0, 1)
        again = json.loads((await run_process(spec)).stdout)
        assert (again["success"], (await store.registry.get_thread(run_id)).status) == (
            False,
            "completed",
        )
    store.close()


def _settings(planned: PlannedWorkspace) -> Settings:
    workspace = planned.workspace
    return Settings(
        project_path=str(workspace.project),
        user_space=str(workspace.user),
        system_spaces=(built_in_space(),),
        inherit_env=(),
        trusted_keys=(),
        trust_project_interpreters=False,
        config={},
        cache_dir=str(planned.root / "cache"),
        durability="process",
        deps_factory=FACTORY,
    )
