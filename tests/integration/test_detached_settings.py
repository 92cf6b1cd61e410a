"""What a process of its own is told, and what it is not."""

import json
from pathlib import Path

import pytest

from ryecore import CallContext
from ryecore.errors import ConfigError, InputError
from ryecore.threads.result import StartedThread
from tests.detached import (
    end_of,
    launch,
    pids_of,
)
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


FACTORY = """
from pathlib import Path
def deps():
    Path(__file__).with_name("called").write_text("yes")
    return {}
def broken():
    raise RuntimeError("hush-factory")
def nothing():
    return 7
"""


async def test_nothing_secret_reaches_a_disk_or_an_argument_list(workspace: Workspace) -> None:
    workspace.environ["ACME_API_KEY"] = "hush-environment"
    ref = workspace.shell("acme/hang", "cat > /dev/null; sleep 300 & echo pids $$ $! end; wait")
    async with workspace.open() as rye:
        launched = await launch(rye, ref, password="hush-parameter")
        await pids_of(workspace, launched)
        command = Path(f"/proc/{launched.pid}/cmdline").read_bytes()
        await rye.threads.kill(launched.thread_id)
    assert b"hush" not in command
    for path in workspace.root.rglob("*"):
        assert not path.is_file() or b"hush" not in path.read_bytes(), path


async def test_the_capabilities_of_the_caller_go_along(workspace: Workspace) -> None:
    ref = workspace.shell("acme/hi", "echo hello")
    ctx = CallContext(capabilities=frozenset({"rye.execute.tool.acme.hi"}))
    async with workspace.open() as rye:
        launched = await rye.execute(ref, async_=True, ctx=ctx)
        assert isinstance(launched, StartedThread)
        assert (await end_of(rye, launched)).status == "completed"
        with pytest.raises(InputError, match="lacks the capability"):
            await rye.execute("tool:rye/bash", {"command": "id"}, async_=True, ctx=ctx)


async def test_the_settings_of_the_host_go_along(workspace: Workspace) -> None:
    workspace.write("config/acme/limits.yaml", "level: 1\n")
    ref = workspace.python(
        "acme/level",
        "def execute(params, project):\n  return params['resolved_config']",
        config_resolve={"path": "acme/limits.yaml"},
    )
    async with workspace.open(config={"acme/limits.yaml": {"level": 2}}) as rye:
        assert (await end_of(rye, await launch(rye, ref))).data == {"level": 2}


async def test_what_can_not_travel_is_refused_at_once(workspace: Workspace) -> None:
    ref = workspace.shell("acme/hi", "echo hello")
    async with workspace.open() as rye:
        with pytest.raises(InputError, match=r"JSON"):
            await rye.execute(ref, {"x": object()}, async_=True)
        assert await rye.threads.list(all=True) == ()


async def test_a_factory_rebuilds_what_the_host_injects(workspace: Workspace) -> None:
    (workspace.root / "hosts_deps.py").write_text(FACTORY)
    workspace.environ["PYTHONPATH"] = str(workspace.root)
    ref = workspace.shell("acme/hi", "echo hello")
    async with workspace.open(deps_factory="hosts_deps:deps") as rye:
        assert (await end_of(rye, await launch(rye, ref))).status == "completed"
    assert (workspace.root / "called").read_text() == "yes"
    for name, error in (
        ("broken", "RuntimeError"),
        ("nothing", "returned int"),
        ("no", "Attribute"),
    ):
        async with workspace.open(deps_factory=f"hosts_deps:{name}") as rye:
            report = await end_of(rye, await launch(rye, ref))
        assert report.status == "error"
        assert error in str(report.error)
        assert "hush" not in json.dumps(report.to_dict())


@pytest.mark.parametrize("path", ["hosts", "./hosts:", ":nowhere:../root/hosts"])
async def test_a_relative_search_path_means_there_what_it_means_here(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    folder = workspace.root / "root/hosts"
    folder.mkdir(parents=True)
    called = workspace.root / "called"
    (folder / "near_deps.py").write_text(
        f"def deps():\n    open({str(called)!r}, 'w').close()\n    return {{}}\n"
    )
    (workspace.root / "root/json.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(workspace.root / "root")
    workspace.environ["PYTHONPATH"] = path
    ref = workspace.shell("acme/hi", "echo hello")
    async with workspace.open(deps_factory="near_deps:deps") as rye:
        report = await end_of(rye, await launch(rye, ref))
    assert (report.status, called.exists()) == ("completed", True), report.error


@pytest.mark.parametrize("name", ["", "x", "x:", ":y", "x y:z", "os:system;", "../x:y"])
async def test_a_factory_is_named_by_module_and_function(workspace: Workspace, name: str) -> None:
    with pytest.raises(ConfigError, match=r"package.module:function"):
        workspace.open(deps_factory=name)


async def test_a_project_in_the_way_of_imports_changes_nothing(workspace: Workspace) -> None:
    for name in ("json.py", "ryecore.py", "anyio.py"):
        (workspace.project / name).write_text("raise SystemExit('hijacked')")
    workspace.environ["PYTHONPATH"] = ""
    ref = workspace.shell("acme/hi", "echo hello")
    async with workspace.open() as rye:
        assert (await end_of(rye, await launch(rye, ref))).status == "completed"
