"""The turn core's contract: a third caller, as managed threads will be.

It nudges, feeds a denial, finishes on a call, hands off, retries and replaces the conversation.

Source: decision 49.
"""

import pytest
from attrs import evolve, fields

from ryecore.agent.assembly import build_plan, build_setup, cost_meter
from ryecore.agent.deps import AgentTurnLimits
from ryecore.agent.turns import run_turns
from ryecore.agent.verdicts import (
    ACCEPT,
    CONTINUE,
    DISPATCH,
    GO,
    KEEP,
    RAISE,
    Fail,
    Feed,
    Finish,
    HandOff,
    Nudge,
    Refuse,
    Replace,
    RetryTurn,
    Stop,
    TurnPolicy,
)
from ryecore.errors import AgentTurnError, LlmError, ToolCallError
from ryecore.llm.parts import Message
from ryecore.llm.request import LlmRequest, ResponseFormat, ToolSpec
from ryecore.policy.context import CallContext
from ryecore.testing import call, fail, say
from ryecore.tools import ToolDef, ToolPolicy, tool
from tests.unit.agent.studio import Studio

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


class Thread(TurnPolicy):
    """What a managed thread wants of its turns."""

    refuse_at: int | None = None

    async def before_attempt(self, entry, request, number):
        self.tries = getattr(self, "tries", 0) + 1
        return Refuse("hold", "no hold left") if self.tries == self.refuse_at else GO

    def __init__(self, *, nudges=1, hand_off_after=None, stop_at=None, replace_after=None):
        self.nudges, self.hand_off_after = nudges, hand_off_after
        self.stop_at, self.replace_after = stop_at, replace_after
        self.seen = []

    async def before_turn(self, state):
        self.seen.append(("turn", state.turn, len(state.messages)))
        return Stop("turns") if state.turn == self.stop_at else GO

    async def on_call(self, state, call, tool):
        if call.name == "rye_directive_return":
            return Finish({"outputs": call.arguments_json})
        if tool is not None and tool.name == "explode":
            return Feed("permission denied: explode")
        return DISPATCH

    async def on_result(self, state, call, came):
        if isinstance(came, ToolCallError):
            return Feed(f"error: {came.error_type}")
        return Feed("guarded", is_error=False, is_correction=False) if call.name == "big" else KEEP

    async def on_text(self, state, result):
        if self.nudges:
            self.nudges -= 1
            return Nudge("Use rye_directive_return.", is_correction=False)
        return ACCEPT

    async def on_error(self, state, error):
        return RetryTurn(1.5) if error.kind == "unavailable" and state.errors < 2 else RAISE

    async def after_turn(self, state, result):
        if state.turn == self.hand_off_after:
            return HandOff({"tail": len(state.messages)})
        if state.turn == self.replace_after:
            return Replace((Message.user("a summary"),))
        return CONTINUE


def core(studio, policy, **limits):
    studio.deps = type(studio.deps)(
        resolve_provider=studio.providers.get,
        key_for=lambda _: "k",
        registry=studio.registry,
        sleep=studio._sleep,
        limits=AgentTurnLimits(**limits),
    )
    agent = studio.agent()
    return build_setup(
        studio.deps,
        agent,
        build_plan(studio.deps, agent, CallContext()),
        answer=None,
        node_id="t1",
        emit=studio.events.append,
        call=CallContext(),
        policy=policy,
        meter=cost_meter(studio.deps, studio.events.append, "t1"),
    )


async def run(policy, *script, tools=(), **limits):
    studio = Studio(*script, tools=tools)
    messages = [Message.user("Go.")]
    result = await run_turns(core(studio, policy, **limits), messages)
    return result, messages, studio


async def test_text_alone_is_nudged_and_a_call_finishes():
    result, messages, studio = await run(
        Thread(),
        "thinking aloud",
        call("add", {"a": 1, "b": 1}) + call("rye_directive_return", {"x": 1}) + call("shout"),
    )
    assert (result.ended, result.output) == ("finished", {"outputs": '{"x": 1}'})
    assert [message.role for message in messages] == [
        "user", "assistant", "user", "assistant", "tool",
    ]  # fmt: skip
    # It beats its sibling calls, which are answered as not run.
    answers = messages[-1].parts
    assert [part.is_error for part in answers] == [True, False, True]
    assert "not run" in answers[0].text
    assert "agent:tool_result" not in studio.told


async def test_a_denial_is_fed_and_counts_as_a_correction():
    result, messages, studio = await run(Thread(nudges=0), call("explode"), "I may not.")
    assert result.ended == "answered"
    denied = messages[2].parts[0]
    assert (denied.is_error, denied.text) == (True, "permission denied: explode")
    assert studio.told.count("agent:tool_result") == 1
    with pytest.raises(AgentTurnError) as caught:
        await run(Thread(), *[call("explode")] * 9, correction_budget=2)
    assert caught.value.code == "tool_failed"


async def test_a_result_can_be_replaced_for_the_model():
    @tool
    async def big() -> str:
        """Give much."""
        return "x" * 1000

    _, messages, _ = await run(Thread(nudges=0), call("big"), "ok", tools=[big])
    assert messages[2].parts[0].text == "guarded"


async def test_a_turn_hands_off_with_its_results_in_the_conversation():
    result, messages, _ = await run(Thread(hand_off_after=2), *[call("add", {"a": 1, "b": 1})] * 5)
    assert (result.ended, result.turns, result.hand_off) == ("handed_off", 2, {"tail": 5})
    assert messages[-1].role == "tool"


async def test_the_conversation_can_be_replaced_and_goes_on():
    result, messages, studio = await run(
        Thread(nudges=0, replace_after=1), call("add", {"a": 1, "b": 1}), "done"
    )
    assert result.ended == "answered"
    assert [message.text for message in messages] == ["a summary", "done"]
    assert len(studio.model.requests[1].messages) == 1


async def test_a_try_that_is_refused_never_leaves_and_ends_the_turns():
    policy = Thread()
    policy.refuse_at = 2
    with pytest.raises(LlmError) as caught:
        await run(policy, call("add", {"a": 1, "b": 1}), "never")
    assert (caught.value.kind, caught.value.code) == ("refused", "hold")


async def test_a_stop_before_a_turn_asks_nobody():
    result, _, studio = await run(Thread(stop_at=2), call("add", {"a": 1, "b": 1}), "never")
    assert (result.ended, result.reason, len(studio.model.requests)) == ("stopped", "turns", 1)


async def test_errors_are_retried_as_the_policy_says_and_then_raised():
    result, _, studio = await run(Thread(nudges=0), fail("unavailable"), "back")
    assert (result.ended, result.turns, studio.slept_s) == ("answered", 1, [1.5])
    with pytest.raises(LlmError):
        await run(Thread(), *[fail("unavailable")] * 9, cooldown_s=0)


async def test_a_stop_on_an_error_ends_with_what_there_is():
    class Gentle(Thread):
        async def on_error(self, state, error):
            return Stop(error.kind)

    result, _, _ = await run(Gentle(), call("add", {"a": 1, "b": 1}), fail("auth"))
    assert (result.ended, result.reason) == ("stopped", "auth")
    assert result.last is not None


async def test_a_failing_verdict_on_a_call_runs_none_of_its_siblings():
    class Strict(Thread):
        async def on_call(self, state, call, tool):
            return Fail("tool_denied", "never") if call.name == "explode" else DISPATCH

    studio = Studio(call("add", {"a": 1, "b": 1}) + call("explode"))
    messages = [Message.user("Go.")]
    with pytest.raises(AgentTurnError) as caught:
        await run_turns(core(studio, Strict()), messages)
    assert (caught.value.code, caught.value.retryable) == ("tool_denied", False)
    assert "agent:tool_result" not in studio.told
    assert [part.is_error for part in messages[-1].parts] == [True, True]


async def test_calls_that_are_all_safe_run_together_and_keep_their_order():
    import anyio

    both = anyio.Event()
    here = []

    @tool
    async def meet(name: str) -> str:
        """Wait for the other one."""
        here.append(name)
        if len(here) == 2:
            both.set()
        with anyio.fail_after(5):
            await both.wait()
        return name

    _, messages, _ = await run(
        Thread(nudges=0), call("meet", {"name": "a"}) + call("meet", {"name": "b"}), "met",
        tools=[meet],
    )  # fmt: skip
    assert [part.text for part in messages[2].parts] == ["a", "b"]


async def test_one_unsafe_call_makes_all_of_them_wait_their_turn():
    running, most = [], []

    def counted(name, **options):
        @tool(name=name, **options)
        async def step() -> str:
            """Take some steps."""
            import anyio

            running.append(name)
            most.append(len(running))
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            running.remove(name)
            return name

        return step

    await run(
        Thread(nudges=0), call("safe") + call("unsafe") + call("safe"), "ok",
        tools=[counted("safe"), counted("unsafe", parallel_safe=False)],
    )  # fmt: skip
    assert max(most) == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"parallel_safe": True}, True),
        ({"parallel_safe": False}, False),
        ({"needs_approval": True}, False),
        ({"needs_approval": True, "parallel_safe": True}, False),
        ({"policy": ToolPolicy(unlisted="ask"), "parallel_safe": True}, False),
    ],
)
def test_async_tools_run_in_parallel_unless_they_say_otherwise(options, expected):
    async def look() -> str:
        """Look."""
        return ""

    def wait() -> str:
        """Wait."""
        return ""

    assert ToolDef.from_function(look, **options).runs_in_parallel is expected
    is_declared = options.get("parallel_safe") is True
    assert ToolDef.from_function(wait, **options).runs_in_parallel is (expected and is_declared)
    assert not ToolDef.from_function(wait, inline=True).runs_in_parallel


async def test_the_first_failure_of_calls_in_order_keeps_the_rest_from_running():
    @tool
    def hold(item: str) -> str:
        """Hold an item."""
        return item

    studio = Studio(call("explode") + call("hold", {"item": "tea"}), tools=[hold])
    messages = [Message.user("Go.")]
    with pytest.raises(AgentTurnError):
        await run_turns(core(studio, TurnPolicy()), messages)
    assert studio.told.count("agent:tool_call") == 1
    assert [part.is_error for part in messages[-1].parts] == [True, True]


async def test_all_that_requests_have_in_common_is_in_each_of_them():
    studio = Studio(call("add", {"a": 1, "b": 1}), "2")
    common = LlmRequest(
        model="m-9",
        messages=(),
        system="You add.",
        tools=(ToolSpec("add", "Add.", {"type": "object"}),),
        tool_choice="required",
        max_output_tokens=9,
        temperature=0.5,
        response_format=ResponseFormat({"type": "string"}),
        reasoning="low",
        cache="1h",
        stop=("END",),
    )
    for one in fields(LlmRequest):
        assert one.name == "messages" or getattr(common, one.name) != one.default
    setup = core(studio, Thread(nudges=0))
    await run_turns(evolve(setup, request=common), [Message.user("Go.")])
    # The plan's own model takes the place of the request's.
    assert [evolve(one, messages=(), model="m-9") for one in studio.model.requests] == [common] * 2


async def test_an_answer_of_nothing_is_an_answer():
    result, messages, _ = await run(Thread(nudges=0), say(""))
    assert (result.ended, len(messages)) == ("answered", 1)
