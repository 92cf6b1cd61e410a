"""The failure ladder, row by row, and a model that behaves badly.

Source: docs/design/agent-node.md#failures; decisions 43 and 52 to 54.
"""

import json
import time
from typing import get_args

import anyio
import pytest

from ryecore.agent.deps import AgentTurnLimits
from ryecore.agent.events import CostUpdated
from ryecore.agent.outcome import ERROR_CODES
from ryecore.agent.session import AgentSession
from ryecore.errors import AgentTurnError, LlmError
from ryecore.errors.agents import ERROR_KINDS, LlmErrorKind
from ryecore.llm.cost import Price
from ryecore.llm.fallback_rules import Refuse
from ryecore.llm.result import Usage
from ryecore.llm.stream import (
    ReasoningDelta,
    StreamEnd,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageUpdate,
)
from ryecore.policy.context import CallContext, CancelToken
from ryecore.testing import call, cut, fail, hang, raw, say
from ryecore.tools import ToolDef
from tests.unit.agent.studio import KEY, Studio

pytestmark = pytest.mark.anyio


def code(done):
    assert done.status == "failed", done
    assert done.failure.message
    assert KEY not in str(done.to_dict())
    return done.failure.code, done.failure.retryable


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("auth", ("provider_auth", False)),
        ("rate_limit", ("provider_rate_limit", True)),
        ("unavailable", ("provider_unavailable", True)),
        ("content_filter", ("content_filter", False)),
        ("bad_request", ("validation", False)),
        ("context_length", ("validation", False)),
        ("unknown", ("internal", False)),
    ],
)
async def test_an_exhausted_chain_fails_by_its_errors_kind(kind, expected):
    assert code(await Studio(fail(kind)).run()) == expected


async def test_a_tool_that_raises_fails_the_node_and_may_go_well_later():
    studio = Studio(call("explode"), "never")
    assert code(await studio.run()) == ("tool_failed", True)
    assert len(studio.model.requests) == 1


async def test_a_denied_tool_is_not_fed_back():
    async def never(request):
        return False

    guarded = ToolDef.from_function(_wave, name="wave", needs_approval=True)
    studio = Studio(call("wave"), "never", tools=[guarded], approve=never)
    assert code(await studio.run()) == ("tool_denied", False)
    assert len(studio.model.requests) == 1


@pytest.mark.parametrize("safe", [False, True])
async def test_a_denied_call_keeps_its_siblings_from_having_an_effect(safe):
    ran = []

    async def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    paying = ToolDef.from_function(pay, parallel_safe=safe)
    denied = ToolDef.from_function(_wave, name="wave", parallel_safe=safe)
    studio = Studio(call("pay") + call("wave") + call("pay"), "never", tools=[paying, denied])
    assert code(await studio.run(node={"tools": ["pay"]})) == ("tool_denied", False)
    assert ran == []


async def test_a_capability_that_the_host_lacks_is_internal_and_named():
    needy = ToolDef.from_function(_wave, name="wave", needs={"net"})
    done = await Studio(call("wave"), "never", tools=[needy]).run()
    assert code(done) == ("internal", False)
    assert "net" in done.failure.message


async def test_an_unknown_tool_is_corrected_and_the_run_goes_on():
    studio = Studio(call("ad", {"a": 1, "b": 2}), call("add", {"a": 1, "b": 2}), "3")
    done = await studio.run()
    assert done.output == "3"
    fed = studio.model.requests[1].messages[-1].parts[0]
    assert fed.is_error
    assert "add" in fed.text


async def test_a_model_that_calls_unknown_tools_for_ever_is_stopped_after_the_budget():
    studio = Studio(*[call("nope")] * 50)
    assert code(await studio.run()) == ("tool_failed", True)
    assert len(studio.model.requests) == 1 + AgentTurnLimits().correction_budget
    # Each of its calls was told of, although none came to a tool.
    assert studio.told.count("agent:tool_call") == studio.told.count("agent:tool_result") == 4


@pytest.mark.parametrize("arguments", ["{", "[1]", "null", '{"a": 1}', '{"a": 1, "b": "x"}'])
async def test_arguments_that_dont_fit_are_corrected_and_never_guessed(arguments):
    studio = Studio(call("add", arguments), call("add", {"a": 1, "b": 2}), "3")
    assert (await studio.run()).output == "3"
    assert studio.model.requests[1].messages[-1].parts[0].is_error


async def test_an_argument_of_20_mb_is_corrected_without_being_read():
    limits = AgentTurnLimits(max_answer_chars=50_000_000)
    studio = Studio(
        raw(
            ToolCallStart(0, "c1", "shout"),
            ToolCallDelta(0, '{"text": "'),
            *[ToolCallDelta(0, "a" * 1_000_000)] * 20,
            ToolCallDelta(0, '"}'),
            StreamEnd("tool_use"),
        ),
        "sorry",
        limits=limits,
    )
    done = await studio.run()
    assert done.output == "sorry"
    fed = studio.model.requests[1].messages[-1].parts[0]
    assert fed.is_error
    assert len(fed.text) < 1_000
    assert all(len(str(event.to_dict())) < 5_000 for event in studio.events)


@pytest.mark.parametrize(
    "chunks",
    [
        [TextDelta("x" * 1_000)] * 200,
        [TextDelta("")] * 100_001,
        [UsageUpdate(Usage(1))] * 100_001,
        [ReasoningDelta("", "x" * 1_000)] * 200,
        [ToolCallStart(number, f"c{number}", "add") for number in range(1_000)],
        [ToolCallStart(0, "c", "x" * 200_000)],
    ],
)
async def test_an_answer_without_end_is_stopped(chunks):
    endless = raw(*chunks)
    done = await Studio(endless, limits=AgentTurnLimits(max_answer_chars=100_000)).run()
    assert code(done) == ("provider_unavailable", True)


async def test_more_tool_turns_than_allowed_is_turn_limit():
    studio = Studio(*[call("add", {"a": 1, "b": 1})] * 10, limits=AgentTurnLimits(max_tool_turns=3))
    assert code(await studio.run()) == ("turn_limit", False)
    assert len(studio.model.requests) == 4
    assert studio.told.count("agent:tool_result") == 3


async def test_more_calls_in_a_turn_than_allowed_are_not_run_and_the_model_is_told():
    many = call("add", {"a": 1, "b": 1})
    for _ in range(4):
        many += call("add", {"a": 1, "b": 1})
    studio = Studio(many, "ok", limits=AgentTurnLimits(max_calls_a_turn=3))
    assert (await studio.run()).output == "ok"
    results = studio.model.requests[1].messages[-1].parts
    assert [part.is_error for part in results] == [False, False, False, True, True]
    assert "3 tools at most" in results[4].text


async def test_a_refusing_hook_is_budget_exceeded_and_nobody_else_is_asked():
    asked = []

    def gate(egress):
        asked.append(egress)
        return Refuse("spend", "The budget is used up.") if len(asked) == 2 else None

    from ryecore.testing import ScriptedProvider

    second = ScriptedProvider(["never"], provider_id="second")
    studio = Studio(
        call("add", {"a": 1, "b": 1}), "never", pre_egress=gate, providers={"second": second}
    )
    agent = studio.agent(fallback_chain=[{"provider": "second", "model": "s"}])
    done = await studio.run(agent=agent)
    assert code(done) == ("budget_exceeded", False)
    assert "used up" in done.failure.message
    assert (len(studio.model.requests), second.requests) == (1, [])
    assert [one.node_id for one in asked] == ["n1", "n1"]
    assert 0 < asked[0].estimated_input_tokens < asked[1].estimated_input_tokens


async def test_a_stop_by_the_filter_fails_as_such():
    done = await Studio(say("I can", stop_reason="content_filter")).run()
    assert code(done) == ("content_filter", False)


@pytest.mark.parametrize("turn", [say("hal") + cut(), say("hal") + fail("unavailable"), cut()])
async def test_a_stream_that_breaks_off_is_unavailable(turn):
    assert code(await Studio(turn, "never").run()) == ("provider_unavailable", True)


async def test_a_stop_reason_of_error_is_unavailable():
    done = await Studio(raw(TextDelta("x"), StreamEnd("error"))).run()
    assert code(done) == ("provider_unavailable", True)


async def test_a_provider_that_stalls_is_unavailable():
    studio = Studio(say("hal") + hang(), limits=AgentTurnLimits(stall_s=0.05))
    assert code(await studio.run()) == ("provider_unavailable", True)
    assert studio.model.open_streams == 0


async def test_an_answer_without_usage_is_a_marked_estimate():
    studio = Studio(call("add", {"a": 1, "b": 1}), "2", price_of=lambda *_: Price("1", "1"))
    done = await studio.run()
    costs = [event for event in studio.events if isinstance(event, CostUpdated)]
    assert [cost.estimated for cost in costs] == [True, True]
    assert all(cost.input_tokens and cost.output_tokens for cost in costs)
    assert done.tokens_used.input == sum(cost.input_tokens for cost in costs)
    assert costs[-1].cumulative_cost_microcents == sum(cost.cost_microcents for cost in costs) > 0
    assert done.tokens_used.estimated
    assert done.tokens_used.to_dict()["estimated"] is True


async def test_a_stream_that_was_cut_costs_a_marked_estimate():
    studio = Studio(say("half of it") + cut(), price_of=lambda *_: Price(input="1", output="1"))
    assert code(await studio.run("A question of some length.")) == ("provider_unavailable", True)
    (cost,) = [event for event in studio.events if isinstance(event, CostUpdated)]
    assert (cost.estimated, cost.priced) == (True, True)
    assert cost.input_tokens > 0
    assert cost.output_tokens == 3  # 10 bytes, at 4 a token
    assert cost.cost_microcents == 100 * (cost.input_tokens + cost.output_tokens)


async def test_a_call_that_is_sent_twice_is_made_once():
    waved = []

    async def wave() -> str:
        """Wave."""
        waved.append(1)
        return "waved"

    twice = raw(
        ToolCallStart(0, "c1", "wave"),
        ToolCallStart(0, "c1", "wave"),
        ToolCallStart(1, "c1", "wave"),
        ToolCallDelta(1, "{}"),
        StreamEnd("tool_use"),
        StreamEnd("tool_use"),
    )
    done = await Studio(twice, "ok", tools=[wave]).run()
    assert (done.output, waved) == ("ok", [1])


@pytest.mark.parametrize("nothing", ["", "{}"])
async def test_a_call_that_was_cut_before_its_arguments_is_not_made_without_them(nothing):
    wiped = []

    async def wipe(what: str = "all") -> str:
        """Wipe something."""
        wiped.append(what)
        return "wiped"

    cut_short = raw(
        ToolCallStart(0, "c1", "wipe"),
        ToolCallDelta(0, '{"what": "dust"}'),
        ToolCallStart(1, "c2", "wipe"),
        ToolCallDelta(1, nothing),
        StreamEnd("length"),
    )
    studio = Studio(cut_short, "ok", tools=[wipe])
    assert ((await studio.run()).output, wiped) == ("ok", ["dust"])
    whole, missing = studio.model.requests[1].messages[-1].parts
    assert (whole.is_error, missing.is_error) == (False, True)
    assert "cut" in missing.text


async def test_a_cancel_wins_over_every_other_failure():
    token = CancelToken()

    async def cancel_and_raise() -> str:
        """Cancel, then raise."""
        token.cancel()
        raise RuntimeError("boom")

    studio = Studio(call("cancel_and_raise"), "never", tools=[cancel_and_raise])
    assert code(await studio.run(signal=token)) == ("cancelled", False)


@pytest.mark.parametrize("in_session", [False, True])
async def test_a_deadline_wins_over_what_fails_behind_it(in_session):
    deadline = time.monotonic() + 0.05

    def overstay() -> str:
        """Compute for too long, then raise."""
        while time.monotonic() < deadline:
            pass
        raise RuntimeError("boom")

    late = ToolDef.from_function(overstay, inline=True)
    ctx = CallContext(deadline=deadline)
    studio = Studio(call("overstay"), fail("unavailable"), tools=[late])
    if not in_session:
        assert code(await studio.run(call=ctx)) == ("cancelled", False)
        return
    with pytest.raises(AgentTurnError) as caught:
        await AgentSession(studio.agent(), studio.deps, call=ctx).send("Go.")
    assert caught.value.code == "cancelled"


async def test_a_cancelled_signal_asks_nobody():
    token = CancelToken()
    token.cancel()
    studio = Studio("never")
    assert code(await studio.run(signal=token)) == ("cancelled", False)
    assert studio.model.requests == []


async def test_a_hanging_model_ends_with_the_signal():
    token = CancelToken()
    studio = Studio(say("hal") + hang())
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:

            def emit(event):
                studio.events.append(event)
                token.cancel()

            async def run():
                done = await studio.run(signal=token, emit=emit)
                assert code(done) == ("cancelled", False)

            tasks.start_soon(run)
    assert (studio.model.open_streams, studio.model.closed) == (0, 1)


async def test_a_key_in_an_exceptions_text_is_nowhere():
    def leak(request):
        raise RuntimeError(f"401 for {KEY}")

    done = await Studio(leak).run()
    assert code(done) == ("internal", False)

    def no_key(provider_id):
        raise LookupError(f"vault says {KEY}")

    done = await Studio("never", key_for=no_key).run()
    assert code(done) == ("provider_auth", False)
    assert "vault" not in done.failure.message


async def test_a_host_function_that_raises_is_internal_and_never_a_raw_throw():
    def broken(provider_id):
        raise LookupError("no such thing")

    assert code(await Studio("x", resolve_provider=broken).run()) == ("internal", False)

    def gate(egress):
        raise ZeroDivisionError("oops")

    assert code(await Studio("x", pre_egress=gate).run()) == ("internal", False)


async def test_an_output_is_checked_in_full_corrected_and_then_refused():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    studio = Studio("three", '{"n": "3"}', '```json\n{"n": 3}\n```')
    done = await studio.run(node={"output_schema": schema})
    assert done.output == {"n": 3}, done.failure
    assert studio.model.requests[0].response_format.schema == schema
    assert "n: " in studio.model.requests[2].messages[-1].text
    never = Studio(*["three"] * 10)
    assert code(await never.run(node={"output_schema": schema})) == ("validation", False)
    assert len(never.model.requests) == 4


async def test_an_output_that_was_cut_fits_no_schema():
    studio = Studio(say('{"n": 1}', stop_reason="length"))
    assert code(await studio.run(node={"output_schema": {"type": "object"}})) == (
        "validation",
        False,
    )


async def test_null_is_an_output_too():
    done = await Studio("null").run(node={"output_schema": {"type": "null"}})
    assert (done.status, done.output) == ("completed", None)


async def test_a_schema_that_is_none_is_a_failed_validation():
    done = await Studio("x").run(node={"output_schema": {"type": "nonsense"}})
    assert code(done) == ("validation", False)


async def test_an_error_of_the_provider_names_the_provider():
    done = await Studio(LlmError("Overloaded.", kind="unavailable")).run()
    assert "Overloaded" in done.failure.message


async def _wave() -> str:
    """Wave."""
    return "waved"


async def test_an_answer_that_misses_its_schema_in_endless_names_is_told_of_it_in_short():
    answer = json.dumps({f"{'k' * 100_000}{number}": 1 for number in range(30)})
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    studio = Studio(answer, "{}", limits=AgentTurnLimits(correction_budget=1))
    done = await studio.run(node={"output_schema": schema})
    assert done.output == {}
    assert len(studio.model.requests[1].messages[-1].text) < 20_000


async def test_an_error_that_cant_be_read_is_an_outcome_still():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    def resolve(provider_id):
        raise Mute

    done = await Studio("x", resolve_provider=resolve).run()
    assert code(done) == ("internal", False)
    assert "Mute" in done.failure.message


@pytest.mark.parametrize("said", [False, True, "too dear", 0])
async def test_what_a_gate_says_and_nobody_understands_lets_nothing_pass(said):
    studio = Studio("never", pre_egress=lambda egress: said)
    done = await studio.run()
    assert code(done) == ("internal", False)
    assert "pre_egress" in done.failure.message
    assert studio.model.requests == []


@pytest.mark.parametrize("usage", [Usage(None), Usage(1, "2"), Usage(-5)])
async def test_a_provider_that_counts_nonsense_fails_the_run_and_raises_nothing(usage):
    assert code(await Studio(say("hello", usage=usage)).run()) == ("internal", False)


def test_every_kind_of_failure_has_its_line_and_a_code_of_the_ladder() -> None:
    assert set(ERROR_KINDS) == set(get_args(LlmErrorKind))
    assert {facts.node_code for facts in ERROR_KINDS.values()} <= set(ERROR_CODES)
    assert not any(facts.is_retryable and facts.ends_call for facts in ERROR_KINDS.values())
