"""A result that is remembered: what is one, what isn't, and who may have it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ryecore.graph.result import GraphResult
from ryecore.graph.result_cache import MAX_RESULT_BYTES
from ryecore.lillux.keys import SigningKey
from ryecore.policy import CallContext
from ryecore.state.records import sign_record
from tests.loops import ON_BOTH_LOOPS
from tests.mcp_items import mcp_tool, stdio_server
from tests.unit.graph.asking import RUNTIME
from tests.workspace import FUNCTION, Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]


@pytest.fixture
def anyio_backend() -> str:
    """What is remembered, and when, is no matter of the loop."""
    return "asyncio"


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


class Counted:
    """A workspace with a tool that leaves a mark each time it runs, and a graph that calls it."""

    def __init__(self, root: Path) -> None:
        self.workspace = Workspace(root)
        self.workspace.environ["SEEN"] = "one"
        self.marks = root / "marks"
        self.workspace.write("tools/acme/counting/__init__.py", "")
        self.helper("1")
        self.tool()
        self.graph()

    def tool(self, more: str = "") -> None:
        body = f"""import os
from acme_helper import VALUE

def execute(params, project_path):
    with open({str(self.marks)!r}, "a") as file:
        file.write("x")
    found = params.get("resolved_config")
    return {{"n": params.get("n"), "value": VALUE, "config": found, "env": os.environ.get("SEEN")}}
{more}"""
        self.workspace.python(
            "acme/counting/count",
            body,
            config_resolve={"path": "acme/count.yaml"},
            env_config={"env": {"ACME_MODE": "${ACME_MODE:-slow}"}},
        )

    def helper(self, value: str) -> None:
        self.workspace.write("tools/acme/counting/acme_helper.py", f"VALUE = {value}\n")

    def graph(
        self, permissions: tuple[str, ...] = ("rye.execute.tool.acme.counting.count",)
    ) -> None:
        nodes = {
            "count": {
                "action": {"item_id": "tool:acme/counting/count", "params": {"n": "${inputs.n}"}},
                "cache_result": True,
                "assign": {"said": "${result}"},
                "next": "done",
            },
            "done": {"type": "return", "output": "${state.said}"},
        }
        write_graph(self.workspace, nodes, permissions)

    @property
    def runs(self) -> int:
        return len(self.marks.read_text()) if self.marks.exists() else 0

    async def run(self, n: int = 1, ctx: CallContext | None = None, **options: Any) -> GraphResult:
        async with self.workspace.open(**options) as rye:
            return await rye.graphs.run("tool:acme/flow", {"n": n}, ctx=ctx)

    def entries(self) -> list[Path]:
        return sorted((self.workspace.project / ".ai/state/graphs").rglob("*.json"))

    def results(self) -> list[Path]:
        return [one for one in self.entries() if one.parent.name == "results"]


def write_graph(
    workspace: Workspace, nodes: dict[str, Any], permissions: tuple[str, ...], **more: Any
) -> str:
    workspace.write(
        "tools/acme/flow.yaml",
        {
            "version": "1.0.0",
            "tool_type": "graph",
            "executor_id": RUNTIME,
            "category": "acme",
            "description": "What it is for",
            "permissions": list(permissions),
            "config_schema": SCHEMA,
            "config": {
                "start": next(iter(nodes)),
                "state": {"said": None},
                "nodes": nodes,
            },
        }
        | more,
    )
    return "tool:acme/flow"


def journal(workspace: Workspace, run_id: str, *kinds: str) -> list[dict[str, Any]]:
    path = workspace.project / ".ai/state/threads" / run_id / "transcript.jsonl"
    said = [json.loads(line) for line in path.read_text().splitlines()]
    return [one["payload"] for one in said if one.get("event_type") in kinds]


@ON_BOTH_LOOPS
async def test_what_is_remembered_is_not_run_again(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    first = await counted.run()
    second = await counted.run()
    assert counted.runs == 1
    assert first.output == second.output == {"n": 1, "value": 1, "config": {}, "env": "one"}
    (told, _) = journal(counted.workspace, second.run_id, "node_completed")
    assert told["cache_hit"] is True
    (told, _) = journal(counted.workspace, first.run_id, "node_completed")
    assert "cache_hit" not in told


async def test_a_process_of_its_own_finds_what_another_one_remembered(tmp_path: Path) -> None:
    """Neither what a call is named nor the process that makes it is a part of the key."""
    counted = Counted(tmp_path)
    await counted.run()
    async with counted.workspace.open() as rye:
        again = await rye.execute("tool:acme/flow", {"n": 1})
    assert again.success, again.error
    assert counted.runs == 1


def _change_the_tool(counted: Counted) -> None:
    counted.tool("# another byte")


def _change_what_it_imports(counted: Counted) -> None:
    counted.helper("2")


def _change_its_runtime(counted: Counted) -> None:
    """Its own copy of the runtime, in the project, shadows the system's."""
    from ryecore.items.spaces import built_in_space

    source = built_in_space().root / f"tools/{FUNCTION}.yaml"
    lines = source.read_text().splitlines(keepends=True)
    text = "".join(one for one in lines if "rye:signed" not in one)
    target = counted.workspace.path(f"tools/{FUNCTION}.yaml")
    lib = source.parent / "lib"
    target.parent.mkdir(parents=True, exist_ok=True)
    if lib.is_dir():
        shutil.copytree(lib, target.parent / "lib")
        for file in (target.parent / "lib").rglob("*.py"):
            counted.workspace.sign(file)
    counted.workspace.write(f"tools/{FUNCTION}.yaml", text + "\n# another byte\n")


def _change_its_config(counted: Counted) -> None:
    counted.workspace.write("config/acme/count.yaml", "limit: 3\n")


def _change_a_variable(counted: Counted) -> None:
    counted.workspace.environ["SEEN"] = "two"


def _set_a_variable_in_dotenv(counted: Counted) -> None:
    (counted.workspace.project / ".env").write_text("ACME_MODE=fast\n")


@pytest.mark.parametrize(
    "change",
    [
        _change_the_tool,
        _change_what_it_imports,
        _change_its_runtime,
        _change_its_config,
        _change_a_variable,
        _set_a_variable_in_dotenv,
    ],
)
async def test_what_a_result_depends_on_is_a_part_of_its_key(
    tmp_path: Path, change: Callable[[Counted], None]
) -> None:
    counted = Counted(tmp_path)
    await counted.run()
    change(counted)
    changed = await counted.run()
    assert changed.ended == "completed", changed.error
    assert counted.runs == 2
    await counted.run()
    assert counted.runs == 2


async def test_another_parameter_is_another_result(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    outputs = [(await counted.run(n)).output["n"] for n in (1, 2, 1, 2)]
    assert outputs == [1, 2, 1, 2]
    assert counted.runs == 2


async def test_what_a_shell_says_of_itself_is_no_part_of_the_key(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    await counted.run()
    counted.workspace.environ |= {"SHLVL": "7", "_": "/usr/bin/rye", "PWD": "/elsewhere"}
    await counted.run()
    assert counted.runs == 1


async def test_a_result_needs_the_capability_to_call(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    await counted.run()
    weak = CallContext(capabilities=frozenset({"rye.execute.tool.acme.flow"}))
    denied = await counted.run(ctx=weak)
    assert denied.failed is not None
    assert denied.failed.code == "tool_denied"
    assert counted.runs == 1


async def test_a_result_of_a_tool_that_no_longer_verifies_is_not_given(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    await counted.run()
    path = counted.workspace.path("tools/acme/counting/count.py")
    path.write_text(path.read_text() + "# unsigned\n")
    done = await counted.run()
    assert done.failed is not None
    assert done.failed.code == "integrity"


async def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    counted.workspace.python(
        "acme/counting/count",
        f"def execute(params, project_path):\n    open({str(counted.marks)!r}, 'a').write('x')\n"
        "    raise RuntimeError('boom')\n",
    )
    for _ in range(2):
        assert (await counted.run()).ended == "error"
    assert counted.runs == 2
    assert counted.results() == []


def _corrupt(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"value", b"VALUE"))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _remove(path: Path) -> None:
    path.unlink()


def _unsign(path: Path) -> None:
    record = json.loads(path.read_text())
    record.pop("_signature")
    path.write_text(json.dumps(record | {"result": '{"n": 666}'}))


def _sign_by_another(path: Path) -> None:
    record = json.loads(path.read_text())
    record.pop("_signature")
    forged = sign_record("graph-result", record | {"result": "666"}, SigningKey.generate())
    path.write_text(json.dumps(forged))


def _make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _make_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _nest(path: Path) -> None:
    path.write_text("[" * 100_000)


@pytest.mark.parametrize(
    "spoil",
    [
        _corrupt, _cut, _empty, _remove, _unsign, _sign_by_another, _make_a_folder, _make_a_pipe,
        _nest,
    ],
)  # fmt: skip
async def test_an_entry_that_cannot_be_proved_is_computed_again(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    counted = Counted(tmp_path)
    first = await counted.run()
    (path,) = counted.results()
    spoil(path)
    second = await counted.run()
    assert second.output == first.output
    assert counted.runs == 2
    if spoil is not _make_a_folder:
        await counted.run()
        assert counted.runs == 2


async def test_an_entry_under_another_key_is_not_given(tmp_path: Path) -> None:
    """A signed entry answers for its own key alone."""
    counted = Counted(tmp_path)
    await counted.run(1)
    (one,) = counted.results()
    await counted.run(2)
    (other,) = set(counted.results()) - {one}
    shutil.copy(one, other)
    assert (await counted.run(2)).output["n"] == 2
    assert counted.runs == 3


async def test_no_value_stands_in_the_key_or_the_entry(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    counted.workspace.environ["ACME_MODE"] = "a-value-that-stands-nowhere"
    await counted.run()
    (path,) = counted.results()
    assert "a-value-that-stands-nowhere" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_keys_differ_from_user_to_user(tmp_path: Path) -> None:
    """So that nobody can try out values against a key."""
    from ryecore.graph.result_cache import secret_of

    assert secret_of(SigningKey.generate()) != secret_of(SigningKey.generate())


async def test_what_is_too_large_is_not_remembered_and_that_is_told(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    counted.workspace.python(
        "acme/counting/count",
        f"def execute(params, project_path):\n    return 'x' * {MAX_RESULT_BYTES}\n",
    )
    done = await counted.run()
    (told,) = journal(counted.workspace, done.run_id, "cache_skipped")
    assert told["node"] == "count"
    assert "larger than" in told["why"]
    assert counted.results() == []


async def test_a_tool_that_changes_while_it_runs_is_not_remembered(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    helper = counted.workspace.path("tools/acme/counting/acme_helper.py")
    counted.helper("2")
    later = helper.read_bytes()
    counted.helper("1")
    counted.workspace.python(
        "acme/counting/count",
        f"""from acme_helper import VALUE

def execute(params, project_path):
    with open({str(helper)!r}, "wb") as file:
        file.write({later!r})
    return VALUE
""",
    )
    done = await counted.run()
    assert done.output == 1
    (told,) = journal(counted.workspace, done.run_id, "cache_skipped")
    assert "changed while it ran" in told["why"]
    assert (await counted.run()).output == 2


async def test_what_cannot_be_written_takes_no_result_from_the_run(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    await counted.run(1)
    folder = counted.results()[0].parent
    folder.rename(folder.with_name("gone"))
    folder.write_text("no folder any more")
    done = await counted.run(2)
    assert done.output["n"] == 2
    (told,) = journal(counted.workspace, done.run_id, "cache_skipped")
    assert told["why"]


async def test_members_of_a_foreach_are_remembered_one_by_one(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    nodes = {
        "each": {
            "type": "foreach", "over": [1, 2, 3], "as": "m", "parallel": True,
            "action": {"item_id": "tool:acme/counting/count", "params": {"n": "${m}"}},
            "cache_result": True, "next": "done", "assign": {"said": "${result.items}"},
        },
        "done": {"type": "return", "output": "${state.said}"},
    }  # fmt: skip
    write_graph(counted.workspace, nodes, ("rye.execute.tool.acme.*",))
    await counted.run()
    nodes["each"]["over"] = [3, 4, 1]
    write_graph(counted.workspace, nodes, ("rye.execute.tool.acme.*",))
    done = await counted.run()
    assert [one["n"] for one in done.output] == [3, 4, 1]
    assert counted.runs == 4
    hits = [bool(one.get("cache_hit")) for one in journal(
        counted.workspace, done.run_id, "item_completed")]  # fmt: skip
    assert sorted(hits) == [False, True, True]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("graph", "own nodes are cached"),
        ("mcp", "an MCP server answers it"),
        ("orchestrator", "ryecore itself answers it"),
    ],
)
async def test_what_cannot_be_keyed_runs_each_time_and_that_is_told(
    tmp_path: Path, name: str, why: str
) -> None:
    workspace = Workspace(tmp_path)
    params: dict[str, Any] = {}
    if name == "mcp":
        stdio_server(workspace)
        item, params = mcp_tool(workspace), {"text": "hi"}
    elif name == "graph":
        write_graph(workspace, {"done": {"type": "return", "output": 1}}, ())
        workspace.path("tools/acme/flow.yaml").rename(workspace.path("tools/acme/inner.yaml"))
        workspace.sign(workspace.path("tools/acme/inner.yaml"))
        item = "tool:acme/inner"
    else:
        item, params = "tool:rye/agent/threads/orchestrator", {"operation": "list_active"}
    nodes = {
        "call": {
            "action": {"item_id": item, "params": params},
            "cache_result": True,
            "next": "done",
        },
        "done": {"type": "return", "output": 1},
    }
    write_graph(workspace, nodes, ("rye.execute.tool.*",))
    async with workspace.open() as rye:
        done = await rye.graphs.run("tool:acme/flow")
    assert done.ended == "completed", done.error
    (told,) = journal(workspace, done.run_id, "cache_skipped")
    assert why in told["why"]


async def test_what_is_forgotten_is_computed_again(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    async with counted.workspace.open() as rye:
        assert await rye.graphs.forget_results() == 0
        assert not (counted.workspace.project / ".ai/state").exists()
    await counted.run(1)
    await counted.run(2)
    async with counted.workspace.open() as rye:
        assert await rye.graphs.forget_results() == 2
    await counted.run(1)
    assert counted.runs == 3
