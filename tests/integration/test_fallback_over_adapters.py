"""A plan over two vendors' adapters, each with its real SDK against a server of its own."""

from collections.abc import Iterator

import pytest

from ryecore.llm import (
    AttemptRecord,
    ChainOptions,
    FallbackChain,
    FallbackPlanEntry,
    LlmRequest,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from ryecore.testing.conformance import HttpResponse, Script, WireServer
from tests.adapters import make_anthropic, make_gemini
from tests.conformance.anthropic_wire import AnthropicWire
from tests.conformance.gemini_wire import GeminiWire

pytestmark = pytest.mark.anyio

_TOOL = ToolSpec("look_up", "Look a word up.", {"type": "object", "properties": {}})


@pytest.fixture
def first() -> Iterator[WireServer]:
    with WireServer(AnthropicWire()) as server:
        yield server


@pytest.fixture
def second() -> Iterator[WireServer]:
    with WireServer(GeminiWire()) as server:
        yield server


async def test_a_vendor_that_hangs_is_left_and_the_next_one_goes_on_with_the_conversation(
    first: WireServer, second: WireServer
) -> None:
    thought = AnthropicWire().reasoning()
    first.answer(Script(thought, "tool_use"), HttpResponse(stop_at=-1, then="hang"))
    second.answer(Script((TextPart("High at noon."),)))
    tried: list[AttemptRecord] = []

    async with (
        make_anthropic(base_url=first.base_url) as anthropic,
        make_gemini(base_url=second.base_url) as gemini,
    ):
        chain = FallbackChain(
            [
                FallbackPlanEntry(anthropic, "claude-opus-5"),
                FallbackPlanEntry(gemini, "gemini-3.5-flash"),
            ],
            ChainOptions(key_for="key-of-{}".format, on_attempt=tried.append, stall_s=0.3),
        )
        asked = (Message.user("When is the tide?"),)
        called = await chain.stream(LlmRequest("", asked, tools=(_TOOL,)))
        (call,) = called.tool_calls
        answer = Message.results(ToolResultPart(call.call_id, call.name, (TextPart("noon"),)))
        done = await chain.stream(LlmRequest("", (*asked, called.message, answer), tools=(_TOOL,)))

        assert first.wait_until(lambda: not first.connections, 1.0)

    assert done.text == "High at noon."
    assert [(one.provider, one.outcome, one.kind) for one in tried] == [
        ("anthropic", "success", None),
        ("anthropic", "error", "unavailable"),
        ("gemini", "success", None),
    ]
    said = [part for _, part in second.seen[-1].flat]
    assert any(isinstance(part, ToolCallPart) for part in said)
    assert not any(isinstance(part, ReasoningPart) for part in said)
    assert (first.seen[-1].key, second.seen[-1].key) == ("key-of-anthropic", "key-of-gemini")
