"""Whatever is changed, the very next call sees it: at every moment of a template's life."""

import os
import resource
import shutil
from collections.abc import Callable, Iterator

import anyio
import anyio.lowlevel
import pytest

from ryecore import Rye
from ryecore.items.spaces import built_in_space
from tests.interpreter import PYTHON
from tests.matrix import IS_SOAK
from tests.warm_hosts import has_starting
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

AT_ONCE = 16 if IS_SOAK else 4
RUNTIMES = "tools/rye/core/runtimes/python"
# A call that started warm shows its template's command line. Tracing would prepare each call anew.
TELL = """\
import os, resource
VALUE = "0"
def seen(params):
    return VALUE
def execute(params, project):
    with open("/proc/self/cmdline") as file:
        return [seen(params), "read(3, 1 << 20)" in file.read()]
"""
LEVEL = TELL.replace("return VALUE", 'return os.environ.get("LEVEL", "0")')


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _bounds_of_the_host() -> Iterator[None]:
    mask, limit = os.umask(0o22), resource.getrlimit(resource.RLIMIT_CORE)
    yield
    os.umask(mask)
    resource.setrlimit(resource.RLIMIT_CORE, limit)


Change = Callable[[str], None]


def tool(workspace: Workspace) -> Change:
    return lambda value: _written(workspace, TELL.replace('"0"', repr(value)))


def _written(workspace: Workspace, body: str) -> None:
    workspace.python("acme/tell", body)


def module(workspace: Workspace) -> Change:
    workspace.write("tools/acme/__init__.py", "")
    workspace.write("tools/acme/tide.py", "VALUE = '0'")
    _written(workspace, TELL.replace('VALUE = "0"', "from tide import VALUE"))
    return lambda value: workspace.write("tools/acme/tide.py", f"VALUE = {value!r}") and None


def a_file_of_variables(workspace: Workspace) -> Change:
    workspace.python("acme/tell", LEVEL, env_config={"env": {"LEVEL": "${LEVEL:-0}"}})
    return lambda value: (workspace.project / ".env").write_text(f"LEVEL={value}\n") and None


def _own_runtime(workspace: Workspace) -> dict[str, str]:
    texts = {}
    for name in ("function.yaml", "template.py"):
        ours = (built_in_space().root / RUNTIMES / name).read_text()
        texts[name] = ours.partition("\n")[2]
        workspace.write(f"{RUNTIMES}/{name}", texts[name])
    _written(workspace, LEVEL)
    return texts


def runtime(workspace: Workspace) -> Change:
    text = _own_runtime(workspace)["function.yaml"]

    def change(value: str) -> None:
        line = '    PYTHONUNBUFFERED: "1"\n'
        assert line in text
        edited = text.replace(line, f'{line}    LEVEL: "{value}"\n')
        workspace.write(f"{RUNTIMES}/function.yaml", edited)

    return change


def interpreter_in_its_place(workspace: Workspace) -> Change:
    del workspace.environ["RYE_PYTHON"]
    program = workspace.project / ".venv/bin/python"
    program.parent.mkdir(parents=True)
    _written(workspace, LEVEL)

    def change(value: str) -> None:
        program.write_text(f'#!/bin/sh\nLEVEL={value} exec {PYTHON} "$@"\n')
        program.chmod(0o755)

    change("0")
    return change


def interpreter_by_another(workspace: Workspace) -> Change:
    in_place = interpreter_in_its_place(workspace)
    program = workspace.project / ".venv/bin/python"

    def change(value: str) -> None:
        program.unlink()
        in_place(value)

    return change


def project(workspace: Workspace) -> Change:
    _written(workspace, TELL)

    def change(value: str) -> None:
        before = workspace.project.rename(workspace.root / f"before {value}")
        shutil.copytree(before, workspace.project)
        _written(workspace, TELL.replace('"0"', repr(value)))

    return change


def mask_of_files(workspace: Workspace) -> Change:
    _written(workspace, TELL.replace("return VALUE", "return str(os.umask(0))"))
    return lambda value: os.umask(int(value)) and None


def bound_of_the_host(workspace: Workspace) -> Change:
    asked = "return str(resource.getrlimit(resource.RLIMIT_CORE)[0])"
    _written(workspace, TELL.replace("return VALUE", asked))
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    return lambda value: resource.setrlimit(resource.RLIMIT_CORE, (int(value), hard))


CHANGES = [
    tool,
    module,
    a_file_of_variables,
    runtime,
    interpreter_in_its_place,
    interpreter_by_another,
    project,
    mask_of_files,
    bound_of_the_host,
]


async def call(rye: Rye) -> tuple[str, bool]:
    """What the tool saw, and whether it started warm."""
    done = await rye.execute("tool:acme/tell")
    assert done.success, done.error
    seen, is_warm = done.data
    return seen, is_warm


async def warmed(rye: Rye, value: str) -> None:
    with anyio.fail_after(30):
        while True:
            seen, is_warm = await call(rye)
            assert seen == value
            if is_warm:
                return
            while has_starting(rye):
                await anyio.sleep(0.005)


async def many(rye: Rye, count: int = AT_ONCE) -> list[str]:
    """What so many calls at once saw."""
    found: list[str] = []

    async def one() -> None:
        found.append((await call(rye))[0])

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    return found


@pytest.mark.parametrize("kind", CHANGES if IS_SOAK else [runtime], ids=lambda kind: kind.__name__)
async def test_the_next_call_sees_what_was_changed_at_any_moment(
    workspace: Workspace, kind: Callable[[Workspace], Change]
) -> None:
    change = kind(workspace)
    async with workspace.open(trust_project_interpreters=True) as rye:
        # Nothing is there yet; a template starts; one is ready; many calls run.
        change("1")
        assert (await call(rye))[0] == "1"
        change("2")
        assert [(await call(rye))[0] for _ in range(2)] == ["2", "2"]
        change("3")
        assert (await call(rye))[0] == "3"
        await warmed(rye, "3")
        change("4")
        assert await call(rye) == ("4", False)
        await warmed(rye, "4")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(many, rye)
            await anyio.lowlevel.checkpoint()
            change("5")
            assert await many(rye, 4) == ["5"] * 4
        change("6")
        assert set(await many(rye)) == {"6"}
        await warmed(rye, "6")


@pytest.mark.parametrize(
    "kind", [kind for kind in CHANGES if kind is not runtime], ids=lambda kind: kind.__name__
)
async def test_a_ready_template_does_not_serve_what_was_changed(
    workspace: Workspace, kind: Callable[[Workspace], Change]
) -> None:
    """The moments are alike for each kind, as the test above shows of runtimes."""
    change = kind(workspace)
    async with workspace.open(trust_project_interpreters=True) as rye:
        change("1")
        await warmed(rye, "1")
        change("2")
        assert await call(rye) == ("2", False)


async def test_a_template_that_was_edited_serves_nobody_any_more(workspace: Workspace) -> None:
    text = _own_runtime(workspace)["template.py"]

    def change(value: str) -> None:
        mark = "\nserve(script"
        assert mark in text
        workspace.write(f"{RUNTIMES}/template.py", text.replace(
            mark, f"\nos.environ['LEVEL'] = '{value}'{mark}"))  # fmt: skip

    async with workspace.open() as rye:
        for value in ("1", "2", "3"):
            change(value)
            with anyio.fail_after(30):
                while True:
                    seen, is_warm = await call(rye)
                    assert seen == (value if is_warm else "0")
                    if is_warm:
                        break
                    while has_starting(rye):
                        await anyio.sleep(0.005)


async def test_a_change_between_two_calls_in_one_moment_is_seen(workspace: Workspace) -> None:
    """Files that are written as fast as calls are made have stamps that barely differ."""
    change = module(workspace)
    async with workspace.open() as rye:
        await warmed(rye, "0")
        for number in range(4):
            change(str(number))
            assert (await call(rye))[0] == str(number)
            assert (await call(rye))[0] == str(number)
