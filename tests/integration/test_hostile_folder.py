"""Whatever program is started, nothing of the folder that it works in, or above, runs in its place.

Source: decision 78.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from ryecore.threads.result import StartedThread
from tests.conformance.starts.starting import Starts
from tests.detached import end_of, launch
from tests.graphs import adding
from tests.hostile import marks, plant, relative_search_paths
from tests.mcp_items import mcp_tool, stdio_server
from tests.thread_host import PlannedWorkspace
from tests.workspace import FUNCTION, SCRIPT, Workspace

WORKS = {"it": "works"}
# A tool that imports whatever it likes, in its call and not before.
PYTHON = """
def work():
    import importlib, sys
    for name in {names!r}.split():
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    ours = sys.argv[-1] if sys.argv[-1].startswith("/") else ""
    assert not [path for path in sys.path if path in ("", ".", ours)]
    return {works!r}
"""
CALLED = "def execute(params, project):\n    return work()\n"
PRINTED = "import json\nprint(json.dumps(work()))\n"
# Some of the interpreter's own, of packages and of neither; each is compiled anew for the call.
NAMES = "csv glob hashlib left queue random site usercustomize uuid"
SPAWNING = """
import json, multiprocessing
if __name__ == '__main__':
    with multiprocessing.get_context('{}').Pool(1) as pool:
        print(json.dumps({{'it': pool.map(str, ['works'])[0]}}))
"""
NODE = """
require("node:fs");
for (const name of ["left-pad", "typescript", "#own"]) {
  try { require(name); } catch {}
}
console.log(JSON.stringify({it: "works"}));
"""
HEADER = 'const __executor_id__ = "rye/core/runtimes/node/node";\n'


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def starts(workspace: Workspace) -> Iterator[Starts]:
    for name, value in relative_search_paths().items():
        workspace.environ[name] = f"{value}{workspace.environ[name]}" if name == "PATH" else value
    with Starts(workspace) as made:
        yield made


@pytest.fixture
def clean(workspace: Workspace, starts: Starts) -> Iterator[None]:
    """A test in a folder full of planted files, none of which runs."""
    where = workspace.root / "marks"
    if not where.exists():
        for folder in (workspace.project, workspace.root):
            plant(folder, where)
    yield
    assert marks(where) == []


def python_tools(workspace: Workspace) -> list[str]:
    work = PYTHON.format(names=NAMES, works=WORKS)
    return [
        workspace.python("acme/function", work + CALLED, executor_id=FUNCTION),
        workspace.python("acme/script", work + PRINTED, executor_id=SCRIPT),
        workspace.python("acme/hasty", f"import json, asyncio, re\n{work}{CALLED}"),
    ]


@pytest.mark.usefixtures("clean")
def test_python_tools_begin_without_the_folder_cold_and_warm(
    workspace: Workspace, starts: Starts
) -> None:
    for ref in python_tools(workspace):
        for ended in starts.both(ref, {}):
            assert (ended.error, ended.data) == (None, WORKS)


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_so_do_the_interpreters_that_a_tool_starts_by_pythons_own_means(
    workspace: Workspace, starts: Starts, method: str
) -> None:
    ref = workspace.python(f"acme/{method}", SPAWNING.format(method), executor_id=SCRIPT)
    assert starts.cold(ref, {}).data == WORKS


@pytest.mark.usefixtures("clean")
def test_shells_and_system_tools_find_no_program_or_profile_there(
    workspace: Workspace, starts: Starts
) -> None:
    say = 'cat /dev/null; ls . > /dev/null; sh -c true; cd bin; echo "{\\"it\\": \\"works\\"}"'
    assert starts.cold(workspace.shell("acme/shell", say), {}).data == WORKS
    done = starts.cold("tool:rye/bash", {"command": "cat /dev/null; env true; bash -c 'echo hi'"})
    assert done.data["stdout"] == "hi\n"


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed here")
@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("is_anchored", [True, False])
def test_a_node_tool_sees_no_package_or_settings_there(
    workspace: Workspace, starts: Starts, is_anchored: bool
) -> None:
    name = f"node{is_anchored}"
    if is_anchored:
        workspace.write(f"tools/{name}/package.json", "{}")
    workspace.write(f"tools/{name}/tool.js", HEADER + NODE)
    ended = starts.cold(f"tool:{name}/tool", {})
    assert (ended.error, ended.data) == (None, WORKS)


@pytest.mark.usefixtures("clean")
def test_a_program_of_its_own_and_an_mcp_server_begin_without_it(
    workspace: Workspace, starts: Starts
) -> None:
    workspace.write("tools/acme/cat", Path("/bin/cat").read_bytes())
    ref = workspace.yaml(
        "acme/program",
        executor_id="rye/core/runtimes/rust/runtime",
        config={"binary": "cat", "args": []},
    )
    assert starts.cold(ref, WORKS).data == WORKS
    stdio_server(workspace)
    for is_kept in (False, True):
        call = mcp_tool(workspace, warm=is_kept, item_id=f"mcp/test/{is_kept}")
        assert starts.cold_rye.execute(call, {"text": "hi"}).raise_for_status()


@pytest.mark.usefixtures("clean")
def test_a_graph_begins_without_it(workspace: Workspace, starts: Starts) -> None:
    done = starts.cold_rye.execute(adding(workspace), {"a": 1}).raise_for_status()
    assert done.data["output"] == {"sum": 2}


@pytest.mark.usefixtures("clean", "starts")
def test_the_command_line_in_the_folder_runs_nothing_of_it(workspace: Workspace) -> None:
    rye = Path(sys.executable).with_name("rye")
    if not rye.exists():
        pytest.skip("ryecore isn't installed here as a program")
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(workspace.user), "LANG": "C.UTF-8"}
    command = [str(rye), "execute", "rye/bash", "command=echo hi"]
    below = workspace.project / "bin"
    for folder in (workspace.project, below):
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=True)
        assert b"hi" in done.stdout


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what is started has a loop of its own
@pytest.mark.usefixtures("clean", "starts")
async def test_a_launched_tool_and_a_launched_thread_begin_without_it(workspace: Workspace) -> None:
    planned = PlannedWorkspace(workspace)
    workspace.environ["PYTHONPATH"] = f":.:{workspace.environ['PYTHONPATH']}"
    tools = python_tools(workspace)[:2]
    ref = planned.write("late", *(["rye_execute", {"item_id": tool}] for tool in tools))
    async with planned.open() as rye:
        for tool in tools:
            report = await end_of(rye, await launch(rye, tool))
            assert report.status == "completed"
            assert report.result["data"] == WORKS  # type: ignore[index]
        started = await rye.execute(ref, thread="fork", async_=True)
        assert isinstance(started, StartedThread)
        with anyio.fail_after(60):
            report = await rye.threads.wait(started.thread_id)
    assert report.status == "completed"
    assert str(report.result).count("works") == len(tools)
