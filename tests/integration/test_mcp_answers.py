"""Servers that are started here and answer oddly: what reaches the caller, soon and well told."""

import json
from typing import Any

import pytest

from tests.interpreter import PYTHON
from tests.matrix import in_turn
from tests.mcp_items import mcp_tool, server_item, why
from tests.workspace import Workspace

pytestmark = pytest.mark.usefixtures("forked_connectors")

PROGRAM = """\
import json, sys
from pathlib import Path

folder = Path(sys.argv[1])
with open(folder / "started", "a") as started:
    started.write("!")
tools, answer = (folder / "tools.json").read_text(), (folder / "answer").read_bytes()
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    said = b'"result": {"tools": %s}' % tools.encode()
    if asked["method"] == "initialize":
        hello = {
            "protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "odd", "version": "1"},
        }
        said = b'"result": %s' % json.dumps(hello).encode()
    elif asked["method"] == "tools/call":
        content = [{"type": "text", "text": asked["params"]["name"]}]
        if (folder / "question").exists():
            print((folder / "question").read_text(), flush=True)
            content = [{"type": "text", "text": sys.stdin.readline()}]
        said = answer or b'"result": %s' % json.dumps({"content": content}).encode()
    sys.stdout.buffer.write(b'{"jsonrpc": "2.0", "id": %d, %s}\\n' % (asked["id"], said))
    sys.stdout.flush()
"""


WAYS = [True, False]
"""Whether the server is kept."""


def odd_tool(
    workspace: Workspace, answer: bytes = b"", name: str = "x", *, warm: bool = True, **more: object
) -> str:
    """A tool of a server that gives this answer to each call, from its `result` on."""
    declared = {"name": name, "description": "", "inputSchema": {"type": "object"}, **more}
    (workspace.root / "odd.py").write_text(PROGRAM)
    (workspace.root / "tools.json").write_text(json.dumps([declared]))
    (workspace.root / "answer").write_bytes(answer)
    args = [str(workspace.root / "odd.py"), str(workspace.root)]
    server_item(workspace, transport="stdio", command=PYTHON, args=args)
    return mcp_tool(workspace, name, declared=declared, item_id="mcp/test/odd", warm=warm)


@pytest.mark.parametrize(("half", "warm"), in_turn([b"\\ud83d", b"\xff"], WAYS))
def test_half_a_character_spoils_only_itself(workspace: Workspace, half: bytes, warm: bool):
    answer = b'"result": {"content": [{"type": "text", "text": "cut here %s"}]}' % half
    done: Any = workspace.execute(odd_tool(workspace, answer, warm=warm))
    assert done.success
    assert done.data["content"][0]["text"][:-1] == "cut here "


@pytest.mark.parametrize(
    ("answer", "warm"),
    in_turn(
        [
            b'"result": null',
            b'"result": []',
            b'"error": {"code": "x"}',
            b'"result": ' + b"[" * 300 + b"]" * 300,
        ],
        WAYS,
    ),
)
def test_an_answer_that_is_none_is_a_failure_at_once(
    workspace: Workspace, answer: bytes, warm: bool
):
    done: Any = workspace.execute(odd_tool(workspace, answer, warm=warm))
    assert "not one of the protocol" in done.error


def test_a_servers_own_error_does_not_end_its_session(workspace: Workspace):
    ref = odd_tool(workspace, b'"error": {"code": -32000, "message": "not today"}')
    with workspace.sync() as rye:
        assert [rye.execute(ref).error for _ in range(3)] == ["not today"] * 3
    assert (workspace.root / "started").read_text() == "!"


@pytest.mark.parametrize(
    ("name", "warm"),
    in_turn(["-x", "--help", "--keep", "a\nb", "${HOME} {tool_path}"], WAYS),
)
def test_any_name_of_a_tool_reaches_the_server(workspace: Workspace, name: str, warm: bool):
    done: Any = workspace.execute(odd_tool(workspace, name=name, warm=warm))
    assert done.data["content"] == [{"type": "text", "text": name}]


@pytest.mark.parametrize("warm", WAYS)
def test_a_declaration_that_is_no_json_is_refused(workspace: Workspace, warm: bool):
    ref = odd_tool(workspace, warm=warm)
    tools = workspace.root / "tools.json"
    tools.write_text(tools.read_text().replace('{"type"', '{"maximum": Infinity, "type"'))
    assert "with values that JSON can't hold" in why(workspace, ref, {})


@pytest.mark.parametrize(("number", "warm"), in_turn([b"NaN", b"Infinity"], WAYS))
def test_a_number_that_is_none_of_json_is_null(workspace: Workspace, number: bytes, warm: bool):
    answer = b'"result": {"content": [], "structuredContent": {"n": %s}}' % number
    done: Any = workspace.execute(odd_tool(workspace, answer, warm=warm))
    assert done.data["structured_content"] == {"n": None}


def test_a_line_that_is_no_message_is_shown_without_half_a_secret(workspace: Workspace):
    workspace.environ["A_TOKEN"] = "hunter2-" * 5
    server_item(
        workspace,
        env={"A_TOKEN": "${A_TOKEN}"},
        transport="stdio",
        command=PYTHON,
        args=["-c", "import os; print('x' * 180 + os.environ['A_TOKEN'])"],
    )
    told = why(workspace, mcp_tool(workspace))
    assert "xxx***" in told
    assert "hunter2" not in told


def nested(depth: int) -> dict[str, object]:
    """A schema that its references multiply tenfold at each level."""
    levels: dict[str, object] = {
        str(level): {"allOf": [{"$ref": f"#/$defs/{level + 1}"}] * 10} for level in range(depth)
    }
    return {"$ref": "#/$defs/0", "$defs": {**levels, str(depth): {"type": "object"}}}


HOSTILE_OUTPUTS = {
    "pattern": ({"properties": {"a": {"pattern": "^(a|aa)+$"}}}, "doesn't fit its schema at a"),
    "looks around": ({"properties": {"a": {"pattern": "^(?=(a+)+$)b"}}}, "doesn't fit its schema"),
    "bomb": (nested(12), "can't be checked"),
    "invalid": ({"properties": {"a": {"type": 5}}}, "can't be checked"),
    "reference out": ({"$ref": "https://example.org/x"}, "can't be checked"),
}


@pytest.mark.parametrize(("case", "warm"), in_turn([*HOSTILE_OUTPUTS], WAYS))
def test_no_output_schema_keeps_a_connector_busy(workspace: Workspace, case: str, warm: bool):
    schema, reason = HOSTILE_OUTPUTS[case]
    structured = {"a": "a" * 5_000 + "!"}
    answer = b'"result": %s' % json.dumps({"content": [], "structuredContent": structured}).encode()
    declared = {"type": "object", **schema}
    problem = why(
        workspace, odd_tool(workspace, answer, warm=warm, outputSchema=declared), timeout_s=20
    )
    assert "'mcp/servers/test' answered badly" in problem
    assert reason in problem


@pytest.mark.parametrize("warm", WAYS)
def test_structured_content_that_fits_its_schema_is_handed_on(workspace: Workspace, warm: bool):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    answer = b'"result": {"content": [], "structuredContent": {"a": 1}}'
    done: Any = workspace.execute(odd_tool(workspace, answer, warm=warm, outputSchema=schema))
    assert done.data["structured_content"] == {"a": 1}


@pytest.mark.parametrize("warm", WAYS)
def test_a_format_of_an_output_schema_only_annotates(workspace: Workspace, warm: bool):
    at = {"type": "string", "format": "date-time"}
    schema = {"type": "object", "properties": {"at": at}, "required": ["at"]}
    answer = b'"result": {"content": [], "structuredContent": {"at": "2026-03-01T10:00:00"}}'
    done: Any = workspace.execute(odd_tool(workspace, answer, warm=warm, outputSchema=schema))
    assert done.data["structured_content"] == {"at": "2026-03-01T10:00:00"}


def test_a_result_without_the_structured_content_that_was_promised_is_a_failure(
    workspace: Workspace,
):
    answer = b'"result": {"content": []}'
    problem = why(workspace, odd_tool(workspace, answer, outputSchema={"type": "object"}))
    assert "returned no structured content" in problem


@pytest.mark.parametrize("warm", WAYS)
def test_a_server_that_asks_back_is_told_no_and_its_schema_is_not_read(
    workspace: Workspace, warm: bool
):
    schema = {"type": "string", "pattern": "^(a|aa)+$", "default": "a" * 5_000 + "!"}
    form = {"type": "object", "properties": {"a": schema}}
    params = {"message": "Your key?", "requestedSchema": form}
    question = {"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params}
    (workspace.root / "question").write_text(json.dumps(question))
    done: Any = workspace.execute(odd_tool(workspace, warm=warm), timeout_s=20)
    answer = json.loads(done.data["content"][0]["text"])
    assert answer["id"] == 7
    assert "result" not in answer
    assert "not supported" in answer["error"]["message"].lower()
