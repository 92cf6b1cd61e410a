"""JavaScript tools: they run what was verified, and import nothing else."""

import os
import shutil
from itertools import product
from pathlib import Path

import pytest

from ryecore.errors import AnchorError, ContentChanged, IntegrityError, UnsignedItem
from ryecore.items.packages import lock_packages
from tests.matrix import in_turn
from tests.workspace import PRIMITIVE, Workspace, events

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None, reason="Node is not installed here; CI installs it"
)

NODE = "rye/core/runtimes/node/node"
REF = "tool:acme/tool"
HEADER = f'const __executor_id__ = "{NODE}";\n'
READ = 'const params = JSON.parse(require("node:fs").readFileSync(0, "utf8"));\n'


def say(expression: str) -> str:
    return f"console.log(JSON.stringify({expression}));\n"


def tool(
    workspace: Workspace, body: str, name: str = "tool.js", *, package: str | None = "{}"
) -> Path:
    """A tool in `acme`, with a package.json beside it that makes the folder its anchor."""
    if package is not None:
        workspace.write("tools/acme/package.json", package)
    return workspace.write(f"tools/acme/{name}", HEADER + body)


def install(workspace: Workspace, name: str, code: str, *, below: Path | None = None) -> Path:
    """A package in the tool's `node_modules`, or in that of another folder."""
    folder = (below or workspace.path("tools/acme")) / "node_modules" / name
    folder.mkdir(parents=True)
    (folder / "package.json").write_text("{}")
    path = folder / "index.js"
    path.write_text(code)
    return path


def test_a_signed_tool_runs_through_its_verified_chain(workspace: Workspace) -> None:
    tool(workspace, READ + say("{params, args: process.argv.slice(2), env: process.env.NODE_ENV}"))
    done = workspace.execute(REF, {"name": "Ada €"}, trace=True)
    assert done.data == {
        "params": {"name": "Ada €"},
        "args": ["--project-path", str(workspace.project)],
        "env": "development",
    }
    assert done.chain.ids == ("acme/tool", NODE, PRIMITIVE)
    assert events(done.trace, "find_interpreter")[0]["how"] == "fallback"
    assert "deps" not in done.metadata


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("tool.mjs", 'import { two } from "./two.mjs";\n' + say("two")),
        ("tool.cjs", 'const { two } = require("./two.cjs");\n' + say("two")),
        ("tool.js", 'import { two } from "#numbers";\n' + say("two")),
        ("tool.mjs", 'const { two } = await import("./two.mjs");\n' + say("two")),
        ("tool.cjs", 'const two = require("./two.json");\n' + say("two")),
        ("tool.cjs", 'const two = require("two");\n' + say("two")),  # NODE_PATH
    ],
)
def test_files_beside_a_tool_are_imported_from_the_sealed_copy(
    workspace: Workspace, name: str, body: str
) -> None:
    workspace.write("tools/acme/two.mjs", "export const two = 2;\n")
    workspace.write("tools/acme/two.cjs", "exports.two = 2;\n")
    workspace.write("tools/acme/two.json", "2")
    package = '{"imports": {"#numbers": "./two.mjs"}}'
    if name == "tool.js":
        package = package.replace("{", '{"type": "module", ', 1)
    tool(workspace, body, name, package=package)
    assert workspace.execute(REF).raise_for_status().data == 2


def test_its_working_folder_is_the_sealed_copy_where_it_has_one(workspace: Workspace) -> None:
    path = tool(workspace, say("[process.cwd(), __dirname]"))
    cwd, sealed = workspace.execute(REF).data
    assert cwd == sealed != str(path.parent)
    workspace.path("tools/acme/package.json").unlink()
    cwd, sealed = workspace.execute(REF).data
    assert (cwd, sealed != cwd) == (str(workspace.project), True)


def test_what_a_tool_prints_to_the_error_stream_does_not_disturb_its_result(
    workspace: Workspace,
) -> None:
    tool(workspace, 'console.error("working");\n' + say("[1]"))
    assert workspace.execute(REF).data == [1]


def test_a_tool_that_throws_shows_the_authors_own_path(workspace: Workspace) -> None:
    path = tool(workspace, 'throw new Error("no such luck");\n')
    done = workspace.execute(REF)
    assert not done.success
    assert f"{path}:" in done.error
    assert "no such luck" in done.error
    assert "sealed" not in done.error


@pytest.mark.parametrize("imported", ['require("./words.js")', 'await import("./words.js")'])
def test_a_changed_import_is_refused_before_anything_runs(
    workspace: Workspace, imported: str
) -> None:
    ran = workspace.root / "ran"
    body = f'require("node:fs").writeFileSync("{ran}", "");\n'
    body += f"(async () => {{ {imported}; {say('1').strip()} }})();\n"
    tool(workspace, body)
    words = workspace.write("tools/acme/words.js", "exports.hello = 1;\n")
    with workspace.sync() as rye:
        rye.execute(REF).raise_for_status()
        ran.unlink()
        words.write_text(words.read_text().replace("hello = 1", "hello = 2"))
        with pytest.raises(ContentChanged, match=str(words)):
            rye.execute(REF)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("words.js", "exports.hello = 'planted';\n"),  # before words.json
        ("words/index.js", "exports.hello = 'planted';\n"),
        ("sub/package.json", '{"main": "planted.js"}'),
        ("package.json", '{"imports": {"#x": "./planted.js"}}'),
        ("deep/node_modules.js", "\n"),
    ],
)
def test_a_file_that_is_added_between_two_calls_is_refused(
    workspace: Workspace, name: str, content: str
) -> None:
    tool(workspace, 'require("./sub");\n' + say('require("./words").hello'))
    workspace.write("tools/acme/words.json", '{"hello": "verified"}')
    workspace.write("tools/acme/sub/index.js", "")
    with workspace.sync() as rye:
        assert rye.execute(REF).data == "verified"
        path = workspace.path(f"tools/acme/{name}")
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        with pytest.raises((UnsignedItem, ContentChanged), match=str(path)):
            rye.execute(REF)
        path.with_name(path.name + ".sig").unlink(missing_ok=True)
        path.unlink()


@pytest.mark.parametrize("name", ["words", "words.node", "words.wasm", "words.jsx"])
def test_what_nobody_verifies_is_not_there_to_be_imported(workspace: Workspace, name: str) -> None:
    tool(
        workspace, f'try {{ require("./{name}"); }} catch (error) {{ {say("error.code").strip()} }}'
    )
    workspace.path(f"tools/acme/{name}").write_text(say("'planted'"))
    assert workspace.execute(REF).data == "MODULE_NOT_FOUND"


def test_a_sidecar_lets_a_binary_module_in(workspace: Workspace) -> None:
    empty = bytes.fromhex("0061736d01000000")
    tool(workspace, say('require("node:fs").readFileSync(__dirname + "/add.wasm").length'))
    workspace.write("tools/acme/add.wasm", empty)
    assert workspace.execute(REF).data == len(empty)


def test_a_package_json_that_nobody_signed_is_refused(workspace: Workspace) -> None:
    tool(workspace, say("1"), package=None)
    path = workspace.write("tools/acme/package.json", "{}", sign=False)
    with pytest.raises(UnsignedItem, match=str(path)):
        workspace.execute(REF)


# --- packages ---


def test_packages_are_linked_and_count_as_unverified(workspace: Workspace) -> None:
    install(workspace, "one", "module.exports = 1;\n")
    tool(workspace, say('require("one")'))
    done = workspace.execute(REF)
    assert (done.data, done.metadata["deps"]) == (1, "unverified")


@pytest.mark.parametrize("change", ["altered", "added", "linked"])
def test_locked_packages_are_verified_and_a_change_is_refused(
    workspace: Workspace, change: str
) -> None:
    one = install(workspace, "one", "module.exports = 1;\n")
    packages = one.parents[1]
    lock_packages(packages, workspace.key)
    tool(workspace, say('require("one")'))
    with workspace.sync() as rye:
        done = rye.execute(REF).raise_for_status()
        assert (done.data, "deps" in done.metadata) == (1, False)
        if change == "altered":
            one.write_text("module.exports = 2;\n")
        elif change == "added":
            install(workspace, "two", "")
        else:
            (packages / "two").symlink_to(workspace.project)
        with pytest.raises(AnchorError):
            rye.execute(REF)


ABOVE = ("project", "project/.ai/tools", "user/.ai/cache", "user/.ai/cache/sealed")


@pytest.mark.parametrize(
    ("where", "name"),
    in_turn([*product(("locked", "linked", "none"), ABOVE)], ["tool.cjs", "tool.mjs", "tool.mjs"]),
)
def test_a_package_above_the_tools_own_is_not_imported(
    workspace: Workspace, where: tuple[str, str], name: str
) -> None:
    kind, place = where
    # `one` has an optional dependency, as many packages have. It isn't installed.
    optional = 'let two = "none"; try { two = require("two"); } catch {}\nmodule.exports = two;\n'
    if kind == "none":
        workspace.write("tools/acme/one.cjs", optional)
    else:
        one = install(workspace, "one", optional)
        if kind == "locked":
            lock_packages(one.parents[1], workspace.key)
    source = "./one.cjs" if kind == "none" else "one"
    body = (
        f'const one = require("{source}");\n'
        if name == "tool.cjs"
        else f'import one from "{source}";\n'
    )
    body += 'const two = import("two").then((found) => found.default, () => "none");\n'
    body += f"two.then((two) => {{ {say('[one, two]').strip()} }});\n"
    tool(workspace, body, name)
    install(workspace, "two", "module.exports = 'planted';\n", below=workspace.root / place)
    assert workspace.execute(REF).raise_for_status().data == ["none", "none"]


def test_a_link_above_the_tools_own_packages_is_not_imported(workspace: Workspace) -> None:
    install(workspace, "one", 'module.exports = import("evil").catch((error) => error.message);\n')
    evil = workspace.project / "evil"
    evil.mkdir()
    (evil / "index.js").write_text("export default 'planted';\n")
    (evil / "package.json").write_text('{"type": "module"}')
    (workspace.project / "node_modules").mkdir()
    (workspace.project / "node_modules" / "evil").symlink_to(evil)
    tool(workspace, f'require("one").then((found) => {{ {say("found").strip()} }});\n')
    message = workspace.execute(REF).raise_for_status().data
    assert "Cannot find package 'evil' in the tool's own node_modules" in message
    assert str(evil) in message


def test_a_package_of_a_workspace_may_be_a_link(workspace: Workspace) -> None:
    install(workspace, "one", "")
    own = workspace.project / "packages" / "own"
    own.mkdir(parents=True)
    (own / "package.json").write_text('{"type": "module", "main": "index.js"}')
    (own / "index.js").write_text("export default 'own';\n")
    (workspace.project / "node_modules").mkdir()
    workspace.path("tools/acme/node_modules/own").symlink_to(own)
    tool(workspace, 'import own from "own";\n' + say("own"), "tool.mjs")
    done = workspace.execute(REF).raise_for_status()
    assert (done.data, done.metadata["deps"]) == ("own", "unverified")


def test_what_a_tool_imports_by_a_path_of_its_own_is_its_own_business(workspace: Workspace) -> None:
    install(workspace, "two", "", below=workspace.project)
    (workspace.project / "settings.mjs").write_text("export default 3;\n")
    body = f'import settings from "{workspace.project}/settings.mjs";\n'
    tool(workspace, body + say("settings"), "tool.mjs")
    assert workspace.execute(REF).raise_for_status().data == 3


# --- the environment ---


def test_a_projects_env_file_decides_nothing_about_node(workspace: Workspace) -> None:
    planted = workspace.project / "planted.cjs"
    planted.write_text("throw new Error('planted');\n")
    names = ("NODE_OPTIONS", "NODE_PATH", "ESBUILD_BINARY_PATH", "TSX_TSCONFIG_PATH", "RYE_NODE")
    (workspace.project / ".env").write_text(
        "".join(f"{name}=--require={planted}\n" for name in names) + "PORT=80\n"
    )
    tool(workspace, say("[process.env.PORT, process.env.ESBUILD_BINARY_PATH]"))
    done = workspace.execute(REF, trace=True, opened={"allow_env": ["PORT"]})
    assert done.data == ["80", None]
    assert events(done.trace, "resolve_env")[0]["dropped"] == sorted(names)


def test_the_hosts_own_options_do_not_change_a_tool(workspace: Workspace) -> None:
    workspace.environ["NODE_OPTIONS"] = "--require=./planted.cjs"
    (workspace.project / "planted.cjs").write_text("throw new Error('planted');\n")
    tool(workspace, say("1"), package=None)
    assert workspace.execute(REF).data == 1


def test_a_tool_may_add_options_of_its_own(workspace: Workspace) -> None:
    workspace.write(
        "tools/acme/tool.js",
        HEADER
        + 'const ENV_CONFIG = {env: {NODE_OPTIONS: "${NODE_OPTIONS} --stack-trace-limit=3"}};\n'
        + say("Error.stackTraceLimit"),
    )
    assert workspace.execute(REF).data == 3


def plant(workspace: Workspace, name: str) -> Path:
    program = workspace.path(f"tools/acme/node_modules/.bin/{name}")
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\necho '\"planted\"'\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("name", ["tsx", "date"])
def test_a_program_of_an_untrusted_projects_packages_is_not_run(
    workspace: Workspace, name: str
) -> None:
    planted = plant(workspace, name)
    tool(workspace, say('require("node:child_process").execSync("date").toString()'))
    done = workspace.execute(REF, trace=True)
    assert "planted" not in done.data
    assert "keeps the project out of PATH" in str(done)
    if name == "tsx":
        passed_over = events(done.trace, "find_interpreter")[0]["passed_over"]
        assert "inside the project, which is not trusted" in passed_over[0]
    trusted = workspace.execute(REF, opened={"trust_project_interpreters": True})
    assert "planted" in trusted.data
    if name == "date":  # a lock vouches for programs that a tool calls
        lock_packages(planted.parents[1], workspace.key)
        assert "planted" in workspace.execute(REF).data


def test_a_folder_of_the_cache_with_a_blank_in_its_name_works(workspace: Workspace) -> None:
    tool(workspace, say("1"))
    done = workspace.execute(REF, opened={"cache_dir": workspace.root / "a cache"})
    assert done.data == 1


def test_dev_mode_runs_a_changed_tool_from_its_own_place(workspace: Workspace) -> None:
    path = tool(workspace, say("__filename"))
    path.write_text(path.read_text() + "\n")
    with pytest.raises(IntegrityError):
        workspace.execute(REF)
    workspace.environ["RYE_DEV_MODE"] = "1"
    with pytest.warns(UserWarning, match="RYE_DEV_MODE"):
        done = workspace.execute(REF)
    assert done.data == os.path.realpath(path)
