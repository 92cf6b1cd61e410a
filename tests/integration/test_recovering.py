"""All that died is resumed at once: by the host, by a command, by several processes."""

import json
import signal
import subprocess
from pathlib import Path

import anyio
import pytest

from ryecore.errors import ConfigError, StateError
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_blocking
from tests.graphs import graph
from tests.thread_host import FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio
PATIENCE_S = 60.0

START = """
import sys, anyio, json
from pathlib import Path
from ryecore import Rye
from tests.thread_host import _deps, _there
root = Path(sys.argv[1])
async def main():
    async with Rye.open(root / 'project', user_space=root / 'user', **_deps(root)) as rye:
        ids = [(await rye.start('directive:acme/' + name)).thread_id for name in ('work', 'left')]
        for name in ('safe', 'pay'):
            ids.append((await rye.graphs.start('tool:acme/' + name)).run_id)
        for name in ('safe', 'pay'):
            await _there(root / (name + '.began'))
        print(json.dumps(ids), flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""

RECOVER = """
import sys, anyio, json
from pathlib import Path
from ryecore import Rye
from tests.thread_host import _deps
root = Path(sys.argv[1])
async def main():
    print('ready', flush=True)
    sys.stdin.readline()
    opened = Rye.open(root / 'project', user_space=root / 'user', recover=True, **_deps(root))
    async with opened as rye:
        for one in rye.recovered:
            if one.run is not None:
                await one.run.result()
        print(json.dumps([one.thread_id for one in rye.recovered if one.run]), flush=True)
anyio.run(main)
"""


@pytest.fixture
def anyio_backend() -> str:
    """The processes' loops are their own."""
    return "asyncio"


def tool_graph(planned: PlannedWorkspace, name: str, **node: object) -> None:
    """A graph of one tool that waits, until it is let through; then it leaves a mark."""
    planned.workspace.shell(
        f"acme/{name}er",
        f'touch "$1/../{name}.began"; test -e "$1/../{name}.go" || exec sleep 300\n'
        f'echo {name} >> "$1/../marks"; echo 1',
    )
    action = {"item_id": f"tool:acme/{name}er"}
    graph(planned.workspace, {name: {"action": action, **node}}, f"acme/{name}")


async def died(tmp_path: Path) -> tuple[PlannedWorkspace, dict[str, str]]:
    """A process was killed that ran two threads, one of them stopped, and two graphs."""
    planned = PlannedWorkspace(Workspace(tmp_path))
    permits = "<execute><tool>host/*</tool></execute>"
    for name in ("work", "left"):
        plan = (["gate", {"name": name}], ["mark", {"text": name}])
        planned.write(name, *plan, permissions=permits)
    tool_graph(planned, "safe", retry={"max": 2})
    tool_graph(planned, "pay")
    host = planned.fork(START, str(tmp_path), stdout=subprocess.PIPE)
    with anyio.fail_after(PATIENCE_S):
        await planned.begun("work")
        await planned.begun("left")
        assert host.stdout
        ids = json.loads(await anyio.to_thread.run_sync(host.stdout.readline))
    host.send_signal(signal.SIGSTOP)  # so that it can't do what is asked of it
    named = dict(zip(("work", "left", "safe", "pay"), ids, strict=True))
    await planned.store().registry.request_cancel(named["left"])
    host.kill()
    host.communicate()
    for name in ("work", "left", "safe", "pay"):
        planned.allow(name)
    return planned, named


def marks(planned: PlannedWorkspace) -> list[str]:
    return sorted((planned.root / "marks").read_text().split())


def rows(store: ThreadStore) -> int:
    return run_blocking(store.registry.count_threads())


async def test_a_host_resumes_all_that_died(tmp_path: Path) -> None:
    planned, ids = await died(tmp_path)
    async with planned.open(agent=None) as rye:
        without = {one.thread_id: one for one in await rye.recover(dry_run=True)}
    assert set(without) == {ids["work"], ids["safe"], ids["pay"]}
    assert isinstance(without[ids["work"]].error, ConfigError)  # it has no models
    before = rows(planned.store())
    async with planned.open() as rye:
        would = await rye.recover(dry_run=True)
        assert [(one.thread_id, one.run, one.error is None) for one in would] == [
            (ids["work"], None, True), (ids["safe"], None, True), (ids["pay"], None, False),
        ]  # fmt: skip
    assert rows(planned.store()) == before
    async with planned.open(recover=True) as rye:
        found = {one.thread_id: one for one in rye.recovered}
        assert set(found) == set(without)
        for name in ("work", "safe"):
            run = found[ids[name]].run
            assert run is not None
            assert (await run.result()).success
        refused = found[ids["pay"]].error
        assert isinstance(refused, StateError)
        assert "--rerun" in refused.next_step
        assert marks(planned) == ["safe", "work"]
        assert [one.thread_id for one in await rye.recover()] == [ids["pay"]]
    with planned.workspace.sync(recover=True) as rye:
        assert [one.thread_id for one in rye.recovered] == [ids["pay"]]
        assert [one.thread_id for one in rye.recover()] == [ids["pay"]]
    assert marks(planned) == ["safe", "work"]


async def test_of_several_processes_that_recover_at_once_one_resumes_each(tmp_path: Path) -> None:
    planned, ids = await died(tmp_path)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    hosts = [planned.fork(RECOVER, str(tmp_path), **pipes) for _ in range(4)]
    assert [host.stdout.readline() for host in hosts if host.stdout] == [b"ready\n"] * 4
    for host in hosts:
        assert host.stdin
        host.stdin.write(b"go\n")
        host.stdin.flush()
    resumed = [json.loads(host.communicate(timeout=PATIENCE_S)[0]) for host in hosts]
    assert sorted(one for some in resumed for one in some) == sorted([ids["work"], ids["safe"]])
    assert marks(planned) == ["safe", "work"]


async def test_the_command_says_what_each_came_to(tmp_path: Path) -> None:
    planned, ids = await died(tmp_path)

    def rye(*arguments: str) -> str:
        """What the command printed, which exits with 1: `pay` waits for somebody to find out."""
        command = ["ryecore.cli", "threads", "recover", *arguments]
        command += ["--project", str(planned.workspace.project)]
        environ = {**planned.environ, "USER_SPACE": str(planned.workspace.user)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with planned.fork(*command, env=environ, **pipes) as process:
            printed, errors = process.communicate()
        assert process.returncode == 1, errors
        return printed.decode()

    said = {one["thread_id"]: one for one in json.loads(rye("--json"))["recovered"]}
    assert set(said) == {ids["work"], ids["safe"], ids["pay"]}
    assert "--deps" in said[ids["work"]]["next_step"]
    assert said[ids["safe"]]["result"]["status"] == "success"
    assert marks(planned) == ["safe"]
    printed = rye("--deps", FACTORY)
    assert "acme/work" in printed
    assert "--rerun" in printed
    assert marks(planned) == ["safe", "work"]
