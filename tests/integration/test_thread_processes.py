"""Several processes run threads on one store at once."""

import json
import subprocess

from ryecore.state.waiting import run_blocking
from tests.matrix import IS_SOAK
from tests.thread_host import COST, PlannedWorkspace
from tests.unit.lillux.system import children
from tests.workspace import Workspace

PROCESSES = 8 if IS_SOAK else 4
PARENTS = 4 if IS_SOAK else 2
CHILDREN = 3


def test_several_processes_run_trees_of_threads_and_the_sums_are_exact(
    workspace: Workspace,
) -> None:
    before = children()
    planned = PlannedWorkspace(workspace)
    child = planned.write("child", ["mark", {"text": "child"}], limits='spend="0.5"')
    fork = ["rye_execute", {"item_id": child, "thread": "fork"}]
    ref = planned.write("parent", [fork] * CHILDREN, ["mark", {"text": "parent"}])
    arguments = (str(planned.root), json.dumps([[ref] * PARENTS]), "--leave-nothing")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    hosts = [planned.fork("tests.thread_host", *arguments, **pipes) for _ in range(PROCESSES)]
    said = [host.communicate(timeout=240) for host in hosts]
    assert [host.returncode for host in hosts] == [0] * PROCESSES, [error for _, error in said]
    results = [one for out, _ in said for one in json.loads(out)["results"]]
    assert [one["state"] for one in results] == ["completed"] * (PROCESSES * PARENTS), results
    assert len({one["thread_id"] for one in results}) == PROCESSES * PARENTS
    marks = (planned.root / "marks").read_text().split()
    assert marks.count("child") == PROCESSES * PARENTS * CHILDREN
    assert marks.count("parent") == PROCESSES * PARENTS

    store = planned.store()
    rows = run_blocking(store.registry.list_threads(limit=1000))
    assert len(rows) == PROCESSES * PARENTS * (1 + CHILDREN)
    assert {row.status for row in rows} == {"completed"}
    assert {row.owner for row in rows} == {None}
    for one in results:
        account = run_blocking(store.ledger.account(one["thread_id"]))
        assert account.own.spend_microcents == 3 * COST
        assert account.children.spend_microcents == CHILDREN * 2 * COST
        assert run_blocking(store.ledger.tree(one["thread_id"])).spent == account.total
        assert account.held.spend_microcents == account.reserved.spend_microcents == 0
        assert len(run_blocking(store.registry.list_children(one["thread_id"]))) == CHILDREN
    store.close()
    assert children() <= before  # other tests' processes may be ending still
