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
from tests.house import House, events
from tests.matrix import in_turn
from tests.npm import npm_program, npm_set

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


def tool(house: House, body: str, *, package: str | None = '{"type": "module"}') -> Path:
    if package is not None:
        house.write("tools/acme/package.json", package)
    return house.write("tools/acme/tool.ts", HEADER + body)


@pytest.fixture
def outside(house: House) -> None:
    """A tsx that lies outside the project, and that the host names."""
    house.environ["RYE_NODE"] = str(npm_program("tsx", "tsx"))


@pytest.fixture
def inside(house: House) -> Path:
    """The tsx that a project brings, beside its tool."""
    folder = house.path("tools/acme/node_modules")
    shutil.copytree(
        npm_set("tsx") / "node_modules", folder, symlinks=True, copy_function=shutil.copy
    )
    return folder


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("package", ["{}", '{"type": "module"}', None])
def test_a_signed_tool_runs_by_a_tsx_that_the_host_names(house: House, package: str | None) -> None:
    tool(house, READ + "enum Two { Two = 2 }\n" + say("{ name, two: Two.Two }"), package=package)
    done = house.execute(REF, {"name": "Ada €"}, trace=True)
    assert done.raise_for_status().data == {"name": "Ada €", "two": 2}
    assert events(done.trace, "find_interpreter")[0]["how"] == "preset"


def test_a_tsx_inside_the_project_runs_once_the_project_is_trusted(
    house: House, inside: Path
) -> None:
    tool(house, READ + say("name"))
    done = house.execute(
        REF, {"name": "Ada"}, opened={"trust_project_interpreters": True}, trace=True
    )
    assert done.raise_for_status().data == "Ada"
    assert events(done.trace, "find_interpreter")[0]["how"] == "local_binary"
    assert done.metadata["deps"] == "unverified"
    lock_packages(inside, house.key)
    done = house.execute(REF, {"name": "Ada"}, opened={"trust_project_interpreters": True})
    assert (done.data, "deps" in done.metadata) == ("Ada", False)


def strips_types() -> bool:
    command = ["node", "-p", "Boolean(process.features.typescript)"]
    return subprocess.run(command, check=True, capture_output=True).stdout == b"true\n"


@pytest.mark.parametrize("brings_tsx", [True, False])
def test_without_a_tsx_that_may_run_the_error_says_what_to_do(
    house: House, request: pytest.FixtureRequest, brings_tsx: bool
) -> None:
    if brings_tsx:
        request.getfixturevalue("inside")
    tool(house, READ + say("name"))
    done = house.execute(REF, {"name": "Ada"}, trace=True)
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
@pytest.mark.parametrize("specifier", ["./words", "./words.js", "./words.ts"])
def test_a_changed_import_is_refused_and_so_is_one_that_shadows_it(
    house: House, specifier: str
) -> None:
    tool(house, f'import {{ hello }} from "{specifier}";\n' + say("hello"))
    words = house.write("tools/acme/words.ts", 'export const hello: string = "hi";\n')
    with house.sync() as rye:
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
def test_the_tools_own_tsconfig_counts_once_it_is_signed(house: House) -> None:
    tool(house, 'import { hello } from "@words/hello";\n' + say("hello"))
    house.write("tools/acme/words/hello.ts", 'export const hello: string = "hi";\n')
    settings = '{"compilerOptions": {"paths": {"@words/*": ["./words/*"]}}}'
    path = house.write("tools/acme/tsconfig.json", settings, sign=False)
    with pytest.raises(UnsignedItem, match=str(path)):
        house.execute(REF)
    house.sign(path)
    assert house.execute(REF).raise_for_status().data == "hi"


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(
    ("place", "package"), in_turn(["project", "user", "user/.ai/cache"], ["{}", None])
)
def test_a_tsconfig_that_nobody_signed_redirects_no_import(
    house: House, package: str | None, place: str
) -> None:
    planted = house.root / "planted.ts"
    planted.write_text("export default 'planted';\n")
    (house.root / place).mkdir(parents=True, exist_ok=True)
    (house.root / place / "tsconfig.json").write_text(
        f'{{"compilerOptions": {{"paths": {{"*": ["{planted}"]}}}}}}'
    )
    house.environ["TSX_TSCONFIG_PATH"] = str(house.root / place / "tsconfig.json")
    tool(house, f'import("left-pad").catch(() => {{ {say("0").strip()} }});\n', package=package)
    assert house.execute(REF).raise_for_status().data == 0


@pytest.mark.usefixtures("outside")
def test_a_package_above_the_tools_own_is_not_imported(house: House, inside: Path) -> None:
    one = inside / "one"
    one.mkdir()
    (one / "package.json").write_text("{}")
    (one / "index.js").write_text("try { require('two'); } catch { module.exports = 1; }\n")
    planted = house.project / "node_modules" / "two"
    planted.mkdir(parents=True)
    (planted / "index.js").write_text("console.log('planted');\n")
    tool(house, 'import one from "one";\n' + say("one"))
    assert house.execute(REF).raise_for_status().data == 1


@pytest.mark.usefixtures("outside")
def test_the_node_that_runs_tsx_is_not_one_that_an_untrusted_project_brings(house: House) -> None:
    planted = house.path("tools/acme/node_modules/.bin/node")
    planted.parent.mkdir(parents=True)
    planted.write_text("#!/bin/sh\necho '\"planted\"'\n")
    planted.chmod(0o755)
    tool(house, say("1"))
    assert house.execute(REF).raise_for_status().data == 1


@pytest.mark.usefixtures("outside")
def test_no_transformed_code_is_kept_where_others_may_write(house: House) -> None:
    temporary = house.root / "tmp"
    temporary.mkdir()
    house.environ["TMPDIR"] = str(temporary)
    house.write("tools/acme/words.ts", "export const words: string[] = [];\n")
    tool(house, 'import { words } from "./words";\n' + say("words"))
    house.execute(REF).raise_for_status()
    assert [path for path in temporary.rglob("*") if path.is_file()] == []


# --- how it ends ---


@pytest.mark.usefixtures("outside")
def test_an_error_shows_the_authors_own_line(house: House) -> None:
    path = tool(house, "interface Unused {\n  a: number;\n}\nthrow new Error('no such luck');\n")
    done = house.execute(REF)
    assert not done.success
    line = path.read_text().split("\n").index("throw new Error('no such luck');") + 1
    assert f"{path}:{line}" in done.error


@pytest.mark.usefixtures("outside")
@pytest.mark.anyio
async def test_a_cancelled_call_ends_tsx_and_the_node_that_it_started(house: House) -> None:
    started = house.root / "started"
    os.mkfifo(started)
    tool(
        house,
        'import { writeFileSync } from "node:fs";\n'
        f'writeFileSync("{started}", `${{process.pid}} ${{process.ppid}}`);\n'
        "setInterval(() => {}, 1000);\n",
    )
    async with house.open() as rye, anyio.create_task_group() as tasks:
        tasks.start_soon(rye.execute, REF)
        pids = await anyio.to_thread.run_sync(started.read_text)
        tasks.cancel_scope.cancel()
    assert len(pids.split()) == 2
    assert [pid for pid in pids.split() if Path("/proc", pid).exists()] == []
