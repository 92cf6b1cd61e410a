"""Cases: answers are read completely and correctly."""

from typing import Final, get_args

import attrs

from ryecore.llm import (
    ReasoningDelta,
    StopReason,
    StreamEnd,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolSpec,
    Usage,
)
from ryecore.testing.conformance.bench import Bench, Cases, case, check, equal
from ryecore.testing.conformance.script import HttpResponse, MadeMedia, Script

__all__ = ["LOOK_UP", "AnswerCases", "thoughtful"]

_UNICODE: Final = "Füße, 東京, 👩‍👩‍👧‍👦, e\u0301, \u2028 and \u0000-free: “…”"
_PNG: Final = bytes.fromhex("89504e470d0a1a0a") + bytes(range(64))

LOOK_UP: Final = ToolSpec(
    "look_up",
    "Look a word up.",
    {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)


class AnswerCases(Cases):
    """Answers are read completely and correctly."""

    @case()
    async def test_text(self, at: Bench) -> None:
        """A text arrives, streamed and whole."""
        await at.both(Script((TextPart("Good morning."),)))

    @case()
    async def test_text_in_many_deltas(self, at: Bench) -> None:
        """Each delta of the server is exactly one delta of the stream."""
        script = Script((TextPart("x" * 400),), deltas=200)
        at.server.answer(script)

        deltas = [one for one in await at.chunks() if isinstance(one, TextDelta)]

        equal("".join(one.text for one in deltas), "x" * 400, "the text")
        equal(len(deltas), 200, "how many deltas came")

    @case()
    async def test_unicode_cut_between_bytes(self, at: Bench) -> None:
        """Characters arrive complete, though each byte is sent by itself."""
        script = Script((TextPart(_UNICODE),), deltas=7)
        await at.both(script)
        body = b"".join(at.wire.stream(script))
        single = tuple(body[n : n + 1] for n in range(len(body)))
        at.server.answer(HttpResponse(single, media_type=at.wire.stream_media_type))

        equal((await at.streamed()).text, _UNICODE, "the text")

    @case()
    async def test_empty_answer(self, at: Bench) -> None:
        """An empty answer is an answer."""
        result = await at.both(Script(()))

        equal(result.parts, (), "the parts")

    @case("tools")
    async def test_tool_call(self, at: Bench) -> None:
        """A call arrives with its id, name and arguments, after a text."""
        call = ToolCallPart("call_1", "look_up", '{"word": "Füße", "deep": {"a": [1, null]}}')
        script = Script((TextPart("Let me see."), call), "tool_use", deltas=3)

        await at.both(script, at.request(tools=(LOOK_UP,)))

    @case("tools")
    async def test_tool_call_without_arguments(self, at: Bench) -> None:
        """Arguments that are an empty object stay one."""
        await at.both(Script((ToolCallPart("call_1", "look_up", "{}"),), "tool_use"))

    @case("tools", "parallel_tools")
    async def test_parallel_tool_calls(self, at: Bench) -> None:
        """Several calls keep their order, ids and arguments, two of the same tool among them."""
        calls = tuple(
            ToolCallPart(f"call_{n}", name, f'{{"word": "{n}"}}')
            for n, name in enumerate(("look_up", "look_up", "other"))
        )
        await at.both(Script(calls, "tool_use", deltas=2), at.request(tools=(LOOK_UP,)))

    @case("tools", "raw_arguments")
    async def test_arguments_that_are_no_json(self, at: Bench) -> None:
        """Arguments are kept as the model wrote them, in a stream."""
        at.server.answer(Script((ToolCallPart("c", "look_up", '{"word": "a'),), "tool_use"))

        result = await at.streamed(at.request(tools=(LOOK_UP,)))

        equal(result.tool_calls[0].arguments_json, '{"word": "a', "the arguments")

    @case("reasoning")
    async def test_reasoning(self, at: Bench) -> None:
        """Reasoning arrives before the part it belongs to, with the data to send back."""
        script = attrs.evolve(thoughtful(at), deltas=2)
        await at.both(script, at.request(reasoning="medium"))

        check(
            any(isinstance(one, ReasoningDelta) for one in await at.chunks()),
            "No ReasoningDelta came.",
        )

    @case("media_output")
    async def test_media(self, at: Bench) -> None:
        """An image from the model is stored, and its part is in the answer."""
        script = Script((TextPart("Here:"), MadeMedia(_PNG, "image/png")))

        result = await at.both(script)

        (part,) = at.expected(Script((MadeMedia(_PNG, "image/png"),)))
        check(part in result.parts, "The image isn't in the answer.")

    @case()
    async def test_usage(self, at: Bench) -> None:
        """Input and output are counted."""
        await at.both(Script((TextPart("Hi."),), usage=Usage(123, 45)))

    @case("cache_read")
    async def test_usage_read_from_the_cache(self, at: Bench) -> None:
        """Tokens from the cache are in their own count only."""
        await at.both(Script((TextPart("Hi."),), usage=Usage(23, 45, cache_read_tokens=1000)))

    @case("cache_write")
    async def test_usage_written_to_the_cache(self, at: Bench) -> None:
        """Tokens written to the cache are in their own count only."""
        usage = Usage(23, 45, cache_read_tokens=7, cache_write_tokens=500)
        await at.both(Script((TextPart("Hi."),), usage=usage))

    @case("cache_write", "cache_write_1h")
    async def test_usage_written_to_the_cache_for_an_hour(self, at: Bench) -> None:
        """Tokens written to the cache for long have another price, and a count of their own."""
        usage = Usage(23, 45, 7, cache_write_tokens=500, cache_write_1h_tokens=80)
        await at.both(Script((TextPart("Hi."),), usage=usage))

    @case("reasoning_usage")
    async def test_usage_of_reasoning(self, at: Bench) -> None:
        """Tokens of reasoning are in their own count only."""
        await at.both(Script((TextPart("Hi."),), usage=Usage(23, 45, reasoning_tokens=300)))

    @case("no_usage")
    async def test_no_usage(self, at: Bench) -> None:
        """A server that counts nothing gives None, and not zero."""
        await at.both(Script((TextPart("Hi."),), usage=None))

    @case()
    async def test_stop_reasons(self, at: Bench) -> None:
        """Each reason has its own name."""
        reasons: tuple[StopReason, ...] = get_args(StopReason)
        for reason in reasons:
            if reason in ("error", "tool_use") or (
                reason == "content_filter" and "content_filter" in at.wire.lacks
            ):
                continue
            await at.both(Script((TextPart("So far"),), reason))

    @case()
    async def test_the_end_comes_last_and_once(self, at: Bench) -> None:
        """A stream ends with its only StreamEnd."""
        at.server.answer(Script((TextPart("Hi."),)))

        chunks = await at.chunks()

        ends = [one for one in chunks if isinstance(one, StreamEnd)]
        check(len(ends) == 1 and chunks[-1] is ends[0], "The StreamEnd isn't the last chunk.")


def thoughtful(at: Bench) -> Script:
    """Return an answer with reasoning, as the vendor writes it."""
    parts = at.wire.reasoning()
    called = any(isinstance(part, ToolCallPart) for part in parts)
    return Script(parts, "tool_use" if called else "stop")
