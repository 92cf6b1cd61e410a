"""Tools that report and ask while they run, behind the MCP server, for clients of both eras."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from ryecore.mcp_server import create_server, parking
from tests.mcp_clients import MODES, arguments, said, stdio
from tests.unit.chain.test_channel import HELPER
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Person:
    """The person and the model at the client, who answer everything."""

    def __init__(self) -> None:
        self.questions: list[str] = []

    async def elicit(self, _: Any, params: Any) -> types.ElicitResult:
        self.questions.append(params.message)
        return types.ElicitResult(action="accept", content={"name": f"Ada {len(self.questions)}"})

    async def sample(self, _: Any, params: Any) -> types.CreateMessageResult:
        self.questions.append(params.messages[0].content.text)
        text = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=text, model="m")

    async def roots(self, _: Any) -> types.ListRootsResult:
        self.questions.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri="file:///work", name="work")])

    @property
    def callbacks(self) -> dict[str, Any]:
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
        }


def asking(workspace: Workspace, body: str, *may_ask: str) -> str:
    text = f"{HELPER}\ndef execute(params, project_path):\n{body}"
    return workspace.python("a/asks", text, may_ask=list(may_ask))


async def execute(client: Client, workspace: Workspace, ref: str, **more: Any) -> Any:
    done = said(await client.call_tool("rye_execute", arguments(workspace, item_id=ref), **more))
    assert done["status"] == "success", done
    return done["data"]


@MODES
async def test_progress_of_a_tool_follows_the_steps_and_rises(
    workspace: Workspace, mode: str
) -> None:
    script = """
for n in 0 50 20 100; do
    printf '{"progress": %d, "total": 100, "message": "at %d"}\\n' $n $n > "$RYE_CHANNEL"
done
"""
    ref = workspace.shell("a/t", script, reports=True)
    told: list[tuple[float, float | None, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with stdio(workspace, mode=mode) as client:
        await execute(client, workspace, ref, progress_callback=tell)
    values = [progress for progress, _, _ in told]
    assert values == sorted(set(values))
    (base,) = {total - 100 for _, total, _ in told if total is not None}
    own = [(progress - base, message) for progress, total, message in told if total is not None]
    assert own[-2:] == [(50, "at 50"), (100, "at 100")]


LOGS = """
printf '{"log": "quiet", "level": "debug"}\\n' > "$RYE_CHANNEL"
printf '{"log": {"rows": 7}, "level": "warning", "logger": "db"}\\n' > "$RYE_CHANNEL"
"""


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_log_messages_reach_a_client_within_the_level_that_it_set(
    workspace: Workspace,
) -> None:
    ref = workspace.shell("a/t", LOGS, reports=True)
    told: list[tuple[str, str | None, Any]] = []

    async def tell(params: types.LoggingMessageNotificationParams) -> None:
        told.append((params.level, params.logger, params.data))

    warning = ("warning", f"{ref} db", {"rows": 7})
    async with stdio(workspace, mode="legacy", logging_callback=tell) as client:
        await execute(client, workspace, ref)
        assert told == [warning]
        await client.session.set_logging_level("debug")
        await execute(client, workspace, ref)
        assert ("debug", ref, "quiet") in told
        told.clear()
        await client.session.set_logging_level("error")
        await execute(client, workspace, ref)
        assert told == []


@MODES
async def test_half_a_character_in_a_report_leaves_the_server_running(
    workspace: Workspace, mode: str
) -> None:
    script = r"""
printf '{"log": "cut \\ud800", "level": "error"}\n' > "$RYE_CHANNEL"
printf '{"progress": 1, "message": "\\ud83d"}\n' > "$RYE_CHANNEL"
"""
    ref = workspace.shell("a/t", script, reports=True)
    told: list[Any] = []

    async def tell(params: types.LoggingMessageNotificationParams) -> None:
        told.append(params.data)

    async with stdio(workspace, mode=mode, logging_callback=tell) as client:
        for _ in range(2):
            await execute(client, workspace, ref, meta={types.LOG_LEVEL_META_KEY: "info"})
    assert told == ["cut ?"] * 2


async def test_a_client_of_2026_gets_log_messages_where_its_request_wants_them(
    workspace: Workspace,
) -> None:
    ref = workspace.shell("a/t", LOGS, reports=True)
    told: list[Any] = []

    async def tell(params: types.LoggingMessageNotificationParams) -> None:
        told.append(params.data)

    async with stdio(workspace, logging_callback=tell) as client:
        await execute(client, workspace, ref)
        assert told == []
        await execute(client, workspace, ref, meta={types.LOG_LEVEL_META_KEY: "info"})
    assert told == [{"rows": 7}]


@MODES
async def test_a_tool_asks_the_person_the_model_and_for_roots(
    workspace: Workspace, mode: str
) -> None:
    body = f"""
    name = ask("elicit", "name", message="Who?", requestedSchema={FORM!r})["result"]
    text = {{"type": "text", "text": "Capital?"}}
    say(ask="sample", id="model", params={{"messages": [{{"role": "user", "content": text}}],
        "maxTokens": 9}})
    say(ask="roots", id="roots")
    with open(os.environ["RYE_ANSWERS"]) as answers:
        both = [json.loads(answers.readline()) for _ in range(2)]
    again = ask("elicit", "name", message="Still?", requestedSchema={FORM!r})["result"]
    return [name, {{one["id"]: one["result"] for one in both}}, again]
"""
    ref, person = asking(workspace, body, "elicit", "sample", "roots"), Person()
    async with stdio(workspace, mode=mode, **person.callbacks) as client:
        name, both, again = await execute(client, workspace, ref)
    assert name == {"action": "accept", "content": {"name": "Ada 1"}}
    assert both["model"]["content"] == {"type": "text", "text": "Paris"}
    assert both["roots"] == {"roots": [{"uri": "file:///work", "name": "work"}]}
    assert again["content"] == {"name": "Ada 4"}
    assert sorted(person.questions) == ["Capital?", "Still?", "Who?", "roots"]


@MODES
async def test_what_a_client_does_not_offer_is_refused(workspace: Workspace, mode: str) -> None:
    body = f"""
    return [ask("elicit", 1, message="Who?", requestedSchema={FORM!r}), ask("roots", 2)]
"""
    ref, person = asking(workspace, body, "elicit", "roots"), Person()
    async with stdio(workspace, mode=mode, list_roots_callback=person.roots) as client:
        elicited, roots = await execute(client, workspace, ref)
    assert "doesn't offer elicitation" in elicited["error"]
    assert "result" in roots
    async with stdio(workspace, mode=mode) as client:
        _, roots = await execute(client, workspace, ref)
    assert "doesn't offer roots" in roots["error"]


@MODES
async def test_what_the_grants_leave_out_is_not_asked(workspace: Workspace, mode: str) -> None:
    ref, person = asking(workspace, '    return ask("roots")', "roots"), Person()
    grants = ("--grant", "rye.execute.*", "--grant", "rye.ask.elicit.*")
    async with stdio(workspace, *grants, mode=mode, **person.callbacks) as client:
        answer = await execute(client, workspace, ref)
    assert "lacks the capability rye.ask.roots.a.asks" in answer["error"]
    assert person.questions == []


@MODES
async def test_questions_and_answers_that_do_not_fit_are_errors(
    workspace: Workspace, mode: str
) -> None:
    form = {**FORM, "properties": {"name": {"type": "string", "maxLength": 2}}}
    body = f"""
    return [ask("elicit", 1, message=7), ask("sample", 2, messages=[]),
        ask("elicit", 3, message="Who?", requestedSchema={form!r})]
"""
    ref, person = asking(workspace, body, "elicit", "sample"), Person()
    async with stdio(workspace, mode=mode, **person.callbacks) as client:
        unread, unbounded, unfit = await execute(client, workspace, ref)
    assert "doesn't fit elicit: message" in unread["error"]
    assert "doesn't fit sample: maxTokens" in unbounded["error"]
    assert "doesn't fit the form" in unfit["error"]


async def raw(
    client: Client,
    workspace: Workspace,
    ref: str,
    *,
    parameters: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    """One request of a client of 2026, with nothing done about a question."""
    given = arguments(workspace, item_id=ref, parameters=parameters)
    return await client.session.call_tool("rye_execute", given, allow_input_required=True, **more)


def yes(name: str = "Ada") -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": name})


TWICE = f"""
    first = ask("elicit", "first", message="One?", requestedSchema={FORM!r})
    second = ask("elicit", "second", message="Two?", requestedSchema={FORM!r})
    return [os.getpid(), first["result"], second["result"]]
"""


async def test_a_client_of_2026_continues_the_very_call(workspace: Workspace) -> None:
    ref, person = asking(workspace, TWICE, "elicit"), Person()
    async with stdio(workspace, **person.callbacks) as client:
        first = await raw(client, workspace, ref)
        assert [*first.input_requests] == ["first"]
        # An answer to something else is passed over, and the question stands.
        again = await raw(
            client, workspace, ref,
            request_state=first.request_state, input_responses={"other": yes()},
        )  # fmt: skip
        assert [*again.input_requests] == ["first"]
        second = await raw(
            client, workspace, ref,
            request_state=again.request_state, input_responses={"first": yes("A")},
        )  # fmt: skip
        assert [*second.input_requests] == ["second"]
        assert len({first.request_state, again.request_state, second.request_state}) == 3
        done = await raw(
            client, workspace, ref,
            request_state=second.request_state, input_responses={"second": yes("B")},
        )  # fmt: skip
    _, one, two = json.loads(done.content[0].text)["data"]
    assert (one["content"], two["content"]) == ({"name": "A"}, {"name": "B"})
    assert person.questions == []


async def test_responses_that_come_with_the_first_request_count(workspace: Workspace) -> None:
    ref, person = asking(workspace, TWICE, "elicit"), Person()
    async with stdio(workspace, **person.callbacks) as client:
        given = {"first": yes("A"), "second": yes("B"), "other": yes()}
        done = await raw(client, workspace, ref, input_responses=given)
    assert json.loads(done.content[0].text)["data"][2]["content"] == {"name": "B"}


async def test_a_state_counts_once_and_for_its_own_request_alone(workspace: Workspace) -> None:
    ref, person = asking(workspace, TWICE, "elicit"), Person()
    other = workspace.shell("a/other", "true")
    async with stdio(workspace, **person.callbacks) as client:
        first = await raw(client, workspace, ref)
        state, answer = first.request_state, {"first": yes()}
        with pytest.raises(MCPError, match="unknown"):
            await raw(client, workspace, ref, request_state=state + "x", input_responses=answer)
        with pytest.raises(MCPError, match="another request"):
            await raw(client, workspace, other, request_state=state, input_responses=answer)
        second = await raw(client, workspace, ref, request_state=state, input_responses=answer)
        assert [*second.input_requests] == ["second"]
        with pytest.raises(MCPError, match="unknown"):
            await raw(client, workspace, ref, request_state=state, input_responses=answer)


async def test_questions_that_come_together_are_asked_together(workspace: Workspace) -> None:
    body = """
    for number in range(3):
        say(ask="roots", id=f"q{number}")
    with open(os.environ["RYE_ANSWERS"]) as answers:
        return [json.loads(answers.readline())["id"] for _ in range(3)]
"""
    ref, person = asking(workspace, body, "roots"), Person()
    async with stdio(workspace, **person.callbacks) as client:
        asked = await raw(client, workspace, ref)
        assert sorted(asked.input_requests) == ["q0", "q1", "q2"]
        roots = types.ListRootsResult(roots=[])
        given = dict.fromkeys(asked.input_requests, roots)
        done = await raw(
            client, workspace, ref, request_state=asked.request_state, input_responses=given
        )
    assert sorted(json.loads(done.content[0].text)["data"]) == ["q0", "q1", "q2"]


@MODES
async def test_many_calls_ask_at_once_and_each_gets_its_own_answer(
    workspace: Workspace, mode: str
) -> None:
    body = f"""
    number = str(params["n"])
    return [number, ask("elicit", message=number, requestedSchema={FORM!r})["result"]["content"]]
"""
    ref = asking(workspace, body, "elicit")

    async def answer(_: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": params.message})

    async with stdio(workspace, mode=mode, elicitation_callback=answer) as client:

        async def call(number: int) -> None:
            given = arguments(workspace, item_id=ref, parameters={"n": number})
            done = said(await client.call_tool("rye_execute", given))
            assert done["data"] == [str(number), {"name": str(number)}]

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(call, number)


@MODES
async def test_a_cancelled_request_ends_its_call(workspace: Workspace, mode: str) -> None:
    ref = workspace.shell(
        "a/t", 'trap "echo over > over; exit" TERM; echo > began; sleep 30 & wait', reports=True
    )
    person = Person()
    for name in ("began", "over"):
        os.mkfifo(workspace.project / name)
    async with (
        stdio(workspace, mode=mode, **person.callbacks) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(raw, client, workspace, ref)
        await anyio.Path(workspace.project / "began").read_text()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            assert await anyio.Path(workspace.project / "over").read_text() == "over\n"


WAITS = f"""
    import signal
    def leave(*_):
        with open(project_path + "/over", "w") as over:
            over.write(str(params["n"]))
        os._exit(0)
    signal.signal(signal.SIGTERM, leave)
    ask("elicit", "name", message="Who?", requestedSchema={FORM!r})
"""


@asynccontextmanager
async def in_process(workspace: Workspace) -> AsyncIterator[Client]:
    async with (
        workspace.open() as rye,
        Client(create_server([rye]), **Person().callbacks) as client,
    ):
        yield client


async def test_a_call_that_nobody_continues_is_ended(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "_PARKED_S", 0.05)
    ref = asking(workspace, WAITS, "elicit")
    os.mkfifo(workspace.project / "over")
    async with in_process(workspace) as client:
        asked = await raw(client, workspace, ref, parameters={"n": 1})
        assert await anyio.Path(workspace.project / "over").read_text() == "1"
        with pytest.raises(MCPError, match=r"unknown|in time"):  # it may be just ending
            await raw(
                client, workspace, ref, parameters={"n": 1}, request_state=asked.request_state
            )


async def test_of_many_calls_that_wait_the_oldest_is_ended(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "_MAX_PARKED", 2)
    ref = asking(workspace, WAITS, "elicit")
    os.mkfifo(workspace.project / "over")
    async with in_process(workspace) as client:
        states = [
            (await raw(client, workspace, ref, parameters={"n": number})).request_state
            for number in range(3)
        ]
        assert await anyio.Path(workspace.project / "over").read_text() == "0"
        for number, state in [*enumerate(states)][1:]:
            done = await raw(
                client, workspace, ref, parameters={"n": number},
                request_state=state, input_responses={"name": yes()},
            )  # fmt: skip
            assert not done.is_error


async def test_calls_that_wait_end_with_the_server(workspace: Workspace) -> None:
    ref = asking(workspace, WAITS, "elicit")
    os.mkfifo(workspace.project / "over")
    async with in_process(workspace) as client:
        await raw(client, workspace, ref, parameters={"n": 7})
        over = os.open(workspace.project / "over", os.O_RDONLY | os.O_NONBLOCK)
    assert os.read(over, 10) == b"7"
    os.close(over)
