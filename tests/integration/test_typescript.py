"""TypeScript tools: they run by tsx, from the verified bytes and with the tool's own settings."""

import os
import shutil
import subprocess
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ryecore.errors import ContentChanged, UnsignedItem
from ryecore.items.packages import lock_packages
from tests.matrix import IS_SOAK, in_turn
from tests.npm import npm_program, npm_set
from tests.workspace import Workspace, events

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None, reason="Node is not installed here; CI installs it"
)

REF = "tool:acme/tool"
HEADER = 'const __executor_id__: string = "rye/core/runtimes/node/node";\n'
READ = """\
import { readFileSync } from "node:fs";
interface Parameters { name: string }
const { name }: Parameters = JSON.parse(readFileSync(0, "utf8"));
"""


def say(expression: str) -> str:
    return f"console.log(JSON.stringify({expression}));\n"


def tool(workspace: Workspace, body: str, *, package: str | None = '{"type": "module"}') -> Path:
    if package is not None:
        workspace.write("tools/acme/package.json", package)
    return workspace.write("tools/acme/tool.ts", HEADER + body)


@pytest.fixture
def outside(workspace: Workspace) -> None:
    """A tsx that lies outside the project, and that the host names."""
    workspace.environ["RYE_NODE"] = str(npm_program("tsx", "tsx"))


@pytest.fixture
def inside(workspace: Workspace) -> Path:
    """The tsx that a project brings, beside its tool."""
    folder = workspace.path("tools/acme/node_modules")
    shutil.copytree(
        npm_set("tsx") / "node_modules", folder, symlinks=True, copy_function=shutil.copy
    )
    return folder


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(
    "package", ["{}", '{"type": "module"}', None] if IS_SOAK else ['{"type": "module"}', None]
)
def test_a_signed_tool_runs_by_a_tsx_that_the_host_names(
    workspace: Workspace, package: str | None
) -> None:
    tool(
        workspace, READ + "enum Two { Two = 2 }\n" + say("{ name, two: Two.Two }"), package=package
    )
    done = workspace.execute(REF, {"name": "Ada €"}, trace=True)
    assert done.raise_for_status().data == {"name": "Ada €", "two": 2}
    assert events(done.trace, "find_interpreter")[0]["how"] == "preset"


def test_a_tsx_inside_the_project_runs_once_the_project_is_trusted(
    workspace: Workspace, inside: Path
) -> None:
    tool(workspace, READ + say("name"))
    done = workspace.execute(
        REF, {"name": "Ada"}, opened={"trust_project_interpreters": True}, trace=True
    )
    assert done.raise_for_status().data == "Ada"
    assert events(done.trace, "find_interpreter")[0]["how"] == "local_binary"
    assert done.metadata["deps"] == "unverified"
    lock_packages(inside, workspace.key)
    done = workspace.execute(REF, {"name": "Ada"}, opened={"trust_project_interpreters": True})
    assert (done.data, "deps" in done.metadata) == ("Ada", False)


def strips_types() -> bool:
    command = ["node", "-p", "Boolean(process.features.typescript)"]
    return subprocess.run(command, check=True, capture_output=True).stdout == b"true\n"


@pytest.mark.parametrize("brings_tsx", [True, False])
def test_without_a_tsx_that_may_run_the_error_says_what_to_do(
    workspace: Workspace, request: pytest.FixtureRequest, brings_tsx: bool
) -> None:
    if brings_tsx:
        request.getfixturevalue("inside")
    tool(workspace, READ + say("name"))
    done = workspace.execute(REF, {"name": "Ada"}, trace=True)
    if strips_types():  # a newer Node needs no tsx
        assert done.data == "Ada"
        return
    assert not done.success
    for hint in ("npm install tsx", "rye trust-project", "RYE_NODE"):
        assert hint in done.error
    passed_over = events(done.trace, "find_interpreter")[0]["passed_over"]
    assert [".bin/tsx: inside the project" in one for one in passed_over] == [True] * brings_tsx


# --- what is imported ---


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(
    "specifier", ["./words", "./words.js", "./words.ts"] if IS_SOAK else ["./words.js"]
)
def test_a_changed_import_is_refused_and_so_is_one_that_shadows_it(
    workspace: Workspace, specifier: str
) -> None:
    tool(workspace, f'import {{ hello }} from "{specifier}";\n' + say("hello"))
    words = workspace.write("tools/acme/words.ts", 'export const hello: string = "hi";\n')
    with workspace.sync() as rye:
        assert rye.execute(REF).raise_for_status().data == "hi"
        shadow = words.with_suffix(".js")
        shadow.write_text('export const hello = "planted";\n')
        with pytest.raises(UnsignedItem, match=str(shadow)):
            rye.execute(REF)
        shadow.unlink()
        words.write_text(words.read_text().replace('"hi"', '"planted"'))
        with pytest.raises(ContentChanged, match=str(words)):
            rye.execute(REF)


@pytest.mark.usefixtures("outside")
def test_the_tools_own_tsconfig_counts_once_it_is_signed(workspace: Workspace) -> None:
    tool(workspace, 'import { hello } from "@words/hello";\n' + say("hello"))
    workspace.write("tools/acme/words/hello.ts", 'export const hello: string = "hi";\n')
    settings = '{"compilerOptions": {"paths": {"@words/*": ["./words/*"]}}}'
    path = workspace.write("tools/acme/tsconfig.json", settings, sign=False)
    with pytest.raises(UnsignedItem, match=str(path)):
        workspace.execute(REF)
    workspace.sign(path)
    assert workspace.execute(REF).raise_for_status().data == "hi"


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(
    ("place", "package"), in_turn(["project", "user", "user/.ai/cache"], ["{}", None])
)
def test_a_tsconfig_that_nobody_signed_redirects_no_import(
    workspace: Workspace, package: str | None, place: str
) -> None:
    planted = workspace.root / "planted.ts"
    planted.write_text("export default 'planted';\n")
    (workspace.root / place).mkdir(parents=True, exist_ok=True)
    (workspace.root / place / "tsconfig.json").write_text(
        f'{{"compilerOptions": {{"paths": {{"*": ["{planted}"]}}}}}}'
    )
    workspace.environ["TSX_TSCONFIG_PATH"] = str(workspace.root / place / "tsconfig.json")
    tool(workspace, f'import("left-pad").catch(() => {{ {say("0").strip()} }});\n', package=package)
    assert workspace.execute(REF).raise_for_status().data == 0


@pytest.mark.usefixtures("outside")
def test_a_package_above_the_tools_own_is_not_imported(workspace: Workspace, inside: Path) -> None:
    one = inside / "one"
    one.mkdir()
    (one / "package.json").write_text("{}")
    (one / "index.js").write_text("try { require('two'); } catch { module.exports = 1; }\n")
    planted = workspace.project / "node_modules" / "two"
    planted.mkdir(parents=True)
    (planted / "index.js").write_text("console.log('planted');\n")
    tool(workspace, 'import one from "one";\n' + say("one"))
    assert workspace.execute(REF).raise_for_status().data == 1


@pytest.mark.usefixtures("outside")
def test_the_node_that_runs_tsx_is_not_one_that_an_untrusted_project_brings(
    workspace: Workspace,
) -> None:
    planted = workspace.path("tools/acme/node_modules/.bin/node")
    planted.parent.mkdir(parents=True)
    planted.write_text("#!/bin/sh\necho '\"planted\"'\n")
    planted.chmod(0o755)
    tool(workspace, say("1"))
    assert workspace.execute(REF).raise_for_status().data == 1


@pytest.mark.usefixtures("outside")
def test_no_transformed_code_is_kept_where_others_may_write(workspace: Workspace) -> None:
    temporary = workspace.root / "tmp"
    temporary.mkdir()
    workspace.environ["TMPDIR"] = str(temporary)
    workspace.write("tools/acme/words.ts", "export const words: string[] = [];\n")
    tool(workspace, 'import { words } from "./words";\n' + say("words"))
    workspace.execute(REF).raise_for_status()
    assert [path for path in temporary.rglob("*") if path.is_file()] == []


# --- how it ends ---


@pytest.mark.usefixtures("outside")
def test_an_error_shows_the_authors_own_line(workspace: Workspace) -> None:
    path = tool(
        workspace, "interface Unused {\n  a: number;\n}\nthrow new Error('no such luck');\n"
    )
    done = workspace.execute(REF)
    assert not done.success
    line = path.read_text().split("\n").index("throw new Error('no such luck');") + 1
    assert f"{path}:{line}" in done.error


@pytest.mark.usefixtures("outside")
@pytest.mark.anyio
async def test_a_cancelled_call_ends_tsx_and_the_node_that_it_started(workspace: Workspace) -> None:
    started = workspace.root / "started"
    os.mkfifo(started)
    tool(
        workspace,
        'import { writeFileSync } from "node:fs";\n'
        f'writeFileSync("{started}", `${{process.pid}} ${{process.ppid}}`);\n'
        "setInterval(() => {}, 1000);\n",
    )
    async with workspace.open() as rye, anyio.create_task_group() as tasks:
        tasks.start_soon(rye.execute, REF)
        pids = await anyio.to_thread.run_sync(started.read_text)
        tasks.cancel_scope.cancel()
    assert len(pids.split()) == 2
    assert [pid for pid in pids.split() if Path("/proc", pid).exists()] == []
