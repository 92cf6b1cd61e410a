"""What MCP servers report and ask while a call runs, and who answers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import CallContext, ExecutionResult
from ryecore.errors import InputError
from ryecore.mcp_client.questions import apply_defaults
from ryecore.results import ToolLog, ToolProgress, ToolQuestion
from tests.integration.test_mcp_eras import DISCOVERED, MODERN, SAID, http_server
from tests.interpreter import PYTHON
from tests.mcp_items import HTTP, STDIO, mcp_tool
from tests.workspace import Workspace

pytestmark = pytest.mark.usefixtures("forked_connectors")

SERVER = Path(__file__).parents[1] / "mcp_asking_server.py"


class Host:
    """A host that answers each question in one way, and keeps what it is told."""

    def __init__(self, **answer: object) -> None:
        self._answer = answer
        self.questions: list[ToolQuestion] = []

    async def __call__(self, question: ToolQuestion, /) -> Mapping[str, object]:
        self.questions.append(question)
        return self._answer


def tool(workspace: Workspace, name: str = "ask", *, may_ask: tuple[str, ...] = ("elicit",)) -> str:
    """A tool of the asking server, whose item declares what it may ask."""
    workspace.yaml(
        "mcp/servers/test",
        executor_id=None,
        tool_type="mcp_server",
        may_ask=list(may_ask),
        config={"transport": "stdio", "command": PYTHON, "args": [str(SERVER)]},
    )
    declared = {"name": name, "inputSchema": {"type": "object"}}
    return mcp_tool(workspace, name, runtime=STDIO, declared=declared)


def said(done: ExecutionResult) -> Any:
    """What the tool said, as JSON."""
    assert done.success, done.error
    return json.loads(done.data["content"][0]["text"])


def test_a_host_answers_a_form_and_defaults_fill_in_what_it_left_out(workspace: Workspace) -> None:
    host = Host(action="accept", content={"name": "Ada"})
    ref = tool(workspace)
    with workspace.sync(ask=host) as rye:
        answer = said(rye.execute(ref))
    assert answer == {"action": "accept", "content": {"name": "Ada", "size": 3}}
    (question,) = host.questions
    assert (question.item_id, question.kind) == ("tool:mcp/test/ask", "elicit")
    assert question.params["message"] == "Who?"


def test_without_a_host_that_answers_nothing_is_offered_to_the_server(workspace: Workspace) -> None:
    ref = tool(workspace, "can")
    with workspace.sync() as rye:
        assert "elicitation" not in said(rye.execute(ref))
    with workspace.sync(ask=Host()) as rye:
        assert "elicitation" in said(rye.execute(ref))


ANSWERS: Mapping[str, Mapping[str, object]] = {
    "sample": {
        "role": "assistant", "model": "m", "content": {"type": "text", "text": "Here."},
    },
    "roots": {"roots": [{"uri": "file:///work", "name": "work"}]},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["sample", "roots"])
def test_a_host_answers_for_its_model_and_its_folders(workspace: Workspace, kind: str) -> None:
    host = Host(**ANSWERS[kind])
    ref, can = tool(workspace, kind, may_ask=(kind,)), tool(workspace, "can", may_ask=(kind,))
    with workspace.sync(ask=host) as rye:
        offered = said(rye.execute(can))
        assert {"sample": "sampling", "roots": "roots"}[kind] in offered
        assert "elicitation" not in offered
        answer = said(rye.execute(ref))
    assert answer == ANSWERS[kind]
    (question,) = host.questions
    assert (question.item_id, question.kind) == (f"tool:mcp/test/{kind}", kind)
    if kind == "sample":
        assert question.params["maxTokens"] == 9


@pytest.mark.parametrize("kind", ["sample", "roots"])
def test_nobody_answers_for_a_model_or_folders_undeclared_unasked_or_wrongly(
    workspace: Workspace, kind: str
) -> None:
    host = Host(**ANSWERS[kind])
    ref, can = tool(workspace, kind, may_ask=(kind,)), tool(workspace, "can", may_ask=(kind,))
    with workspace.sync() as rye:  # no host that answers
        assert not {"sampling", "roots"} & said(rye.execute(can)).keys()
        assert "code" in said(rye.execute(ref))
    with workspace.sync(ask=Host(nonsense=1)) as rye:
        assert "code" in said(rye.execute(ref))
    bounded = CallContext(capabilities=frozenset({"rye.execute.*", "rye.ask.elicit.*"}))
    with workspace.sync(ask=host) as rye:
        assert "code" in said(rye.execute(ref, ctx=bounded))
    ref, can = tool(workspace, kind), tool(workspace, "can")  # its item declares elicit alone
    with workspace.sync(ask=host) as rye:
        assert not {"sampling", "roots"} & said(rye.execute(can)).keys()
        assert "code" in said(rye.execute(ref))
    assert host.questions == []


def test_a_server_whose_item_does_not_declare_it_can_not_ask(workspace: Workspace) -> None:
    host = Host(action="accept", content={"name": "Ada"})
    ref = tool(workspace, may_ask=())
    with workspace.sync(ask=host) as rye:
        assert "code" in said(rye.execute(ref))
    assert host.questions == []


def test_a_caller_without_the_capability_is_not_asked(workspace: Workspace) -> None:
    host = Host(action="accept", content={"name": "Ada"})
    ref = tool(workspace)
    bounded = CallContext(capabilities=frozenset({"rye.execute.tool.mcp.*"}))
    granted = CallContext(capabilities=frozenset({"rye.execute.*", "rye.ask.elicit.mcp.test.*"}))
    with workspace.sync(ask=host) as rye:
        assert "code" in said(rye.execute(ref, ctx=bounded))
        assert host.questions == []
    with workspace.sync(ask=host) as rye:
        assert said(rye.execute(ref, ctx=granted))["action"] == "accept"


def test_a_server_that_may_ask_lists_its_tools(workspace: Workspace) -> None:
    tool(workspace)
    with workspace.sync(ask=Host()) as rye:
        listed = rye.execute("tool:mcp/servers/test").raise_for_status()
    assert [one["name"] for one in listed.data["tools"]] == [
        "ask", "can", "flood", "sample", "roots", "long",
    ]  # fmt: skip


def test_the_refusal_of_a_host_reaches_the_server(workspace: Workspace) -> None:
    async def refuse(question: ToolQuestion, /) -> Mapping[str, object]:
        raise InputError("Not today.", next_step="Come back.")

    ref = tool(workspace)
    with workspace.sync(ask=refuse) as rye:
        assert said(rye.execute(ref))["message"] == "Not today."


def test_a_server_that_asks_on_and_on_has_eight_questions_open_at_most(
    workspace: Workspace,
) -> None:
    asked: list[str] = []
    answered = anyio.Event()  # four of the twelve, while the host still thinks

    async def answer(question: ToolQuestion, /) -> Mapping[str, object]:
        asked.append(question.key)
        await answered.wait()
        return {"action": "decline"}

    ref = tool(workspace, "flood")
    ctx = CallContext(report_sink=lambda _: answered.set())
    with workspace.sync(ask=answer) as rye:
        answers = said(rye.execute(ref, ctx=ctx))
    declined = [one for one in answers if one.get("action") == "decline"]
    assert len(declined) == len(asked) == 8
    assert {one["message"] for one in answers if "message" in one} == {
        "8 questions are open already."
    }


def test_progress_and_logs_are_reports_and_events_of_the_call(workspace: Workspace) -> None:
    reports: list[ToolProgress | ToolLog] = []
    events: list[Mapping[str, object]] = []
    ctx = CallContext(report_sink=reports.append, event_sink=events.append)
    ref = tool(workspace)
    with workspace.sync() as rye:
        said(rye.execute(ref, ctx=ctx))
    progress = next(one for one in reports if isinstance(one, ToolProgress))
    log = next(one for one in reports if isinstance(one, ToolLog))
    assert (progress.progress, progress.total, progress.message) == (1, 2, "half")
    assert (log.level, log.data) == ("warning", {"rows": 7})
    assert {one.item_id for one in reports} == {"tool:mcp/test/ask"}
    assert {one.call_id for one in reports} == {ctx.call_id}
    assert {"progress", "log"} <= {event["step"] for event in events}


def test_a_task_of_2025_is_polled_reports_and_asks_while_its_result_is_waited_for(
    workspace: Workspace,
) -> None:
    reports: list[object] = []
    host = Host(action="accept", content={"name": "Ada"})
    ref = tool(workspace, "long")
    with workspace.sync(ask=host) as rye:
        done = said(rye.execute(ref, ctx=CallContext(report_sink=reports.append)))
    assert done["answer"] == {"action": "accept", "content": {"name": "Ada", "size": 3}}
    assert done["gap_s"] >= 0.05  # as its interval of 60 ms wants it
    assert done["task"] == {}
    (progress,) = [one for one in reports if isinstance(one, ToolProgress)]
    assert (progress.progress, progress.total, progress.message) == (3, 4, "later")


def test_a_server_of_2026_asks_by_its_result_and_gets_its_state_back(workspace: Workspace) -> None:
    asked = {"method": "elicitation/create", "params": {
        "message": "Sure?", "requestedSchema": {"type": "object", "properties": {
            "sure": {"type": "boolean"}}}}}  # fmt: skip
    seen: list[dict[str, Any]] = []

    def answer(method: str, message: dict[str, Any]) -> dict[str, Any] | None:
        if method == "server/discover":
            return MODERN | DISCOVERED
        if method == "tools/list":
            return MODERN | {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        seen.append(message)
        if "inputResponses" in message["params"]:
            return MODERN | SAID
        return {
            "resultType": "input_required",
            "inputRequests": {"sure": asked},
            "requestState": "st\u00e4te",
        }

    host = Host(action="accept", content={"sure": True})
    with http_server(answer) as server, workspace.sync(ask=host) as rye:
        workspace.yaml(
            "mcp/servers/test", executor_id=None, tool_type="mcp_server", may_ask=["elicit"],
            config={"transport": "http", "url": server.url},
        )  # fmt: skip
        declared = {"name": "echo", "inputSchema": {"type": "object"}}
        ref = mcp_tool(workspace, "echo", runtime=HTTP, declared=declared)
        assert rye.execute(ref).success
    first, second = seen
    assert first["id"] != second["id"]
    assert second["params"]["requestState"] == "st\u00e4te"
    given = second["params"]["inputResponses"]["sure"]
    assert (given["action"], given["content"]) == ("accept", {"sure": True})


@pytest.mark.parametrize(("broken", "succeeds"), [(3, True), (9, False)])
def test_a_task_of_2026_is_asked_once_and_survives_a_busy_gateway(
    workspace: Workspace, broken: int, succeeds: bool
) -> None:
    asked = {"method": "elicitation/create", "params": {
        "mode": "form", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {
            "sure": {"type": "boolean"}}}}}  # fmt: skip
    task = {"taskId": "t 1", "createdAt": "2026-07-28T10:30:00Z", "ttlMs": None,
            "lastUpdatedAt": "2026-07-28T10:30:00Z", "pollIntervalMs": 50}  # fmt: skip
    asking = {**task, "resultType": "complete", "status": "input_required",
              "inputRequests": {"sure": asked}}  # fmt: skip
    done = {**task, "resultType": "complete", "status": "completed",
            "result": {"content": [{"type": "text", "text": "over"}]}}  # fmt: skip
    polled: list[object] = [asking, asking, *[None] * broken, done]

    def answer(method: str, message: dict[str, Any]) -> Any:
        match method:
            case "server/discover":
                return MODERN | DISCOVERED
            case "tools/list":
                return MODERN | {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                return {**task, "resultType": "task", "status": "working"}
            case "tasks/get":
                return polled.pop(0)
        return {"resultType": "complete"}

    host = Host(action="accept", content={"sure": True})
    with http_server(answer) as server, workspace.sync(ask=host) as rye:
        workspace.yaml(
            "mcp/servers/test", executor_id=None, tool_type="mcp_server", may_ask=["elicit"],
            config={"transport": "http", "url": server.url},
        )  # fmt: skip
        declared = {"name": "echo", "inputSchema": {"type": "object"}}
        ref = mcp_tool(workspace, "echo", runtime=HTTP, declared=declared)
        ended = rye.execute(ref)
    assert ended.success is succeeds, ended.error
    assert len(host.questions) == 1
    about = [(method, headers, message["params"]) for method, headers, message in server.seen
             if method.startswith("tasks/")]  # fmt: skip
    assert {params["taskId"] for _, _, params in about} == {"t 1"}
    assert {headers["mcp-name"] for _, headers, _ in about} == {"t 1"}
    (update,) = [params for method, _, params in about if method == "tasks/update"]
    assert update["inputResponses"]["sure"]["content"] == {"sure": True}
    assert ("tasks/cancel" in [method for method, _, _ in about]) is not succeeds
    (call,) = [message for method, _, message in server.seen if method == "tools/call"]
    offered = call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert "io.modelcontextprotocol/tasks" in offered["extensions"]


@pytest.mark.parametrize(
    ("schema", "content", "filled"),
    [
        ({"properties": {"a": {"default": 1}}}, {}, {"a": 1}),
        ({"properties": {"a": {"default": 1}}}, {"a": 2}, {"a": 2}),
        ({"properties": {"a": {"type": "string"}}}, {}, {}),
        ({"properties": {"a": {"default": None}}}, {}, {"a": None}),
        ("nonsense", {"a": 1}, {"a": 1}),
    ],
)
def test_defaults_are_for_fields_that_were_left_out(
    schema: Any, content: dict[str, Any], filled: dict[str, Any]
) -> None:
    assert apply_defaults(content, schema) == filled
