"""A foreach that runs an agent for each member: at once, within a budget, resumed and checked."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.errors import GraphInvalid
from ryecore.llm import LlmRequest, Price
from ryecore.llm.result import Usage
from ryecore.testing import Turn, call, fail, say
from tests.unit.graph.asking import Asking, agent, gives

USED = Usage(100, 10)
COST = 100 * 300 + 10 * 1500

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def _host(root: Path, model: Any, each: dict[str, Any] | None = None, **config: Any) -> Asking:
    host = Asking(
        root,
        model=model,
        price_of=lambda *_: Price(input="3", output="15"),
        unpriced_models=frozenset(),
    )
    node = {
        "type": "foreach", "over": "${inputs.rows}", "as": "row", "agent_ref": "writer",
        "prompt_template": "Label {{ ctx.row.text }} in {{ inputs.tongue }}, {{ run.outputs.how }}",
        "parallel": True, "collect": "all", "next": "done",
    } | (each or {})  # fmt: skip
    nodes = {"each": node, "done": gives({"all": "${state.all}"})}
    more = {"state": {"all": [], "how": "briefly", "unread": "x" * 5000}} | config
    host.graph(nodes, agents={"writer": agent()}, **more)
    return host


def _rows(count: int) -> dict[str, Any]:
    return {"rows": [{"text": f"t{index}"} for index in range(count)], "tongue": "Welsh"}


def _text(request: LlmRequest) -> str:
    return request.messages[0].text.split()[1]


async def _answer(request: LlmRequest) -> Turn:
    await anyio.lowlevel.checkpoint()
    return say(f"label of {_text(request)}", usage=USED)


async def test_an_agent_runs_for_each_member_at_once_and_in_order(tmp_path: Path) -> None:
    waiting, both = [], anyio.Event()

    async def together(request: LlmRequest) -> Turn:
        waiting.append(request.messages[0].text)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        return await _answer(request)

    host = _host(tmp_path, together, {"max_concurrency": 2})
    with anyio.fail_after(30):
        done = await host.walk("tool:acme/flow", _rows(4))
    assert done.ended == "completed", done
    assert done.output == {"all": [f"label of t{index}" for index in range(4)]}
    assert sorted(waiting)[0] == "Label t0 in Welsh, briefly"
    assert done.total.spend_microcents == 4 * COST
    ends = host.told(done.run_id, "item_completed")
    assert {one.payload["spend_microcents"] for one in ends} == {COST}
    children = await host.store().registry.list_children(done.run_id)
    assert {one.thread_id for one in children} == {one.payload["thread_id"] for one in ends}
    assert {one.item_id for one in children} == {"tool:acme/flow/each"}
    (started,) = host.told(children[0].thread_id, "run_started")
    assert started.payload["inputs"] == {"tongue": "Welsh"}  # nothing else is copied


async def test_members_share_a_budget_and_fail_alone(tmp_path: Path) -> None:
    async def some(request: LlmRequest) -> Turn:
        if _text(request) == "t1":
            return fail("content_filter", "no")
        return await _answer(request)

    host = _host(tmp_path, some, max_concurrency=20, on_error="continue")
    with anyio.fail_after(60):
        done = await host.walk("tool:acme/flow", _rows(60), limits={"spend": 0.05})
    assert done.ended == "completed_with_errors"
    assert done.output["all"][:3] == ["label of t0", None, "label of t2"]
    assert [one.node for one in done.errors] == ["each[1]"]
    assert [one.code for one in done.errors] == ["content_filter"]
    assert done.total.spend_microcents == 59 * COST


async def test_an_agents_answer_of_a_schema_and_its_tools_are_those_of_a_node(
    tmp_path: Path,
) -> None:
    async def adds(request: LlmRequest) -> Turn:
        number = int(_text(request)[1:])
        if len(request.messages) == 1:
            return call("add", {"a": number, "b": 1})
        assert str(number + 1) in str(request.messages[-1].parts)
        return say(f'{{"sum": {number + 1}}}')

    schema = {
        "type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"],
    }  # fmt: skip
    host = _host(
        tmp_path, adds, {"output_schema": schema, "tools": ["add"]},
        permissions=("rye.execute.tool.host.add",),
    )  # fmt: skip
    host.graph(
        {
            "each": {
                "type": "foreach", "over": "${inputs.rows}", "agent_ref": "writer",
                "prompt_template": "Add {{ ctx.item.text }}", "output_schema": schema,
                "collect": "all", "next": "done",
            },
            "done": gives("${state.all}"),
        },
        agents={"writer": agent(tools=["add"])},
        permissions=("rye.execute.tool.host.add",),
        state={"all": []},
    )  # fmt: skip
    done = await host.walk("tool:acme/flow", _rows(3))
    assert done.output == [{"sum": 1}, {"sum": 2}, {"sum": 3}]


async def test_a_run_that_was_stopped_resumes_with_the_members_that_are_left(
    tmp_path: Path,
) -> None:
    asked: list[str] = []
    reached, is_open = anyio.Event(), False

    async def stops(request: LlmRequest) -> Turn:
        asked.append(_text(request))
        if _text(request) == "t2" and not is_open:
            reached.set()
            await anyio.sleep_forever()
        return await _answer(request)

    host = _host(tmp_path, stops, {"parallel": False})
    async with host.open() as rye:
        with anyio.fail_after(30):
            run = await rye.graphs.start("tool:acme/flow", _rows(4))
            await reached.wait()
            await run.cancel()
            first = await run.result()
            assert first.ended == "cancelled"
            is_open = True
            asked.clear()
            done = await rye.graphs.resume(first.run_id, rerun=True)
    assert done.output == {"all": [f"label of t{index}" for index in range(4)]}
    assert asked == ["t2", "t3"]


@pytest.mark.parametrize(
    ("each", "said"),
    [
        ({"action": {"item_id": "tool:acme/x"}}, "A foreach with an 'agent_ref' has no 'action'"),
        ({"cache_result": True}, "A foreach with an 'agent_ref' has no 'cache_result'"),
        ({"agent_ref": "painter"}, "There is no agent 'painter'"),
        ({"prompt_template": None}, "prompt_template is missing"),
        ({"prompt_template": "{{ ctx.rows }}"}, "'rows' is not known here"),
        ({"prompt_template": "{{ run.outputs.none }}"}, "none"),
        ({"tools": ["hammer"]}, "has no tool 'hammer'"),
        ({"over": "text"}, "not a list"),
        ({"agent_ref": None}, "is for a foreach that has an 'agent_ref'"),
    ],
)
async def test_what_is_wrong_is_told_before_it_runs(
    tmp_path: Path, each: dict[str, Any], said: str
) -> None:
    host = _host(tmp_path, _answer, each)
    async with host.open() as rye:
        with pytest.raises(GraphInvalid) as refused:
            await rye.graphs.load("tool:acme/flow")
    assert said in str(refused.value)


async def test_it_is_drawn_and_listed_with_its_agent(tmp_path: Path) -> None:
    host = _host(tmp_path, _answer)
    async with host.open() as rye:
        graph = await rye.graphs.load("tool:acme/flow")
        report = await rye.graphs.validate("tool:acme/flow")
    assert "agent writer for each of ${inputs.rows}" in str(graph)
    assert "agent writer" in graph._repr_html_()
    assert "Nothing reads state.unread." in [one.message for one in report.warnings]
