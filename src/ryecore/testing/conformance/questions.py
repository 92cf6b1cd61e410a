"""Cases: requests are written completely, in the vendor's format."""

import json
from unittest import SkipTest

import attrs

from ryecore.llm import (
    LlmRequest,
    MediaPart,
    Message,
    Part,
    ReasoningPart,
    ResponseFormat,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from ryecore.testing.conformance.answers import LOOK_UP, thoughtful
from ryecore.testing.conformance.bench import KEY, Bench, Cases, case, check, equal
from ryecore.testing.conformance.script import Script, SeenRequest

__all__ = ["QuestionCases"]

_PNG = bytes.fromhex("89504e470d0a1a0a") + bytes(range(256))
_PDF = b"%PDF-1.7\n" + bytes(range(200))
_NONE = ToolSpec("now", "What time it is.", {"type": "object", "properties": {}})
_DONE = Script((TextPart("Fine."),))


class QuestionCases(Cases):
    """Requests are written completely, in the vendor's format."""

    @case()
    async def test_the_simplest_request(self, at: Bench) -> None:
        """Model, key and text arrive, and nothing else."""
        for seen in await _seen(at, at.request("What is a tide?")):
            equal(seen.model, at.model, "the model")
            equal(seen.key, KEY, "the key that the server saw")
            equal(_flat(seen), [("user", TextPart("What is a tide?"))], "the messages")
            equal(seen.system, "", "the system text")
            equal(seen.tools, (), "the tools")
            equal(seen.temperature, None, "the temperature")
            equal(seen.response_schema, None, "the schema")
            equal(seen.stop, (), "the stops")

    @case()
    async def test_streaming_is_asked_for_by_stream_alone(self, at: Bench) -> None:
        """`stream` requests a stream, `generate` a whole answer."""
        seen = await _seen(at, at.request())

        if seen[0].streaming is None:
            raise SkipTest("This vendor does nothing but stream.")
        equal([one.streaming for one in seen], [True, False], "whether a stream was asked for")

    @case()
    async def test_system_stands_in_the_system_position(self, at: Bench) -> None:
        """The system text is not sent as a message of the user."""
        for seen in await _seen(at, at.request("Hello?", system="Be brief.")):
            equal(seen.system, "Be brief.", "the system text")
            equal(_flat(seen), [("user", TextPart("Hello?"))], "the messages")

    @case()
    async def test_conversation(self, at: Bench) -> None:
        """Messages keep their order and their roles."""
        messages = (Message.user("One?"), Message.assistant("Two."), Message.user("Three?"))
        for seen in await _seen(at, at.request(messages=messages)):
            equal(_flat(seen), _parts(messages), "the messages")

    @case("cache_lifetime", "tools")
    async def test_cache_lifetime(self, at: Bench) -> None:
        """The vendor is asked to keep the conversation for as long as the request says."""
        for lifetime in ("5m", "1h", None):
            request = at.request(system="Be brief.", tools=(LOOK_UP,), cache=lifetime)
            for seen in await _seen(at, request):
                equal(seen.cache, lifetime, "the time for which the conversation is kept")
                equal(seen.system, "Be brief.", "the system text")
                equal(seen.tools, (LOOK_UP,), "the tools")

    @case("tools")
    async def test_tools(self, at: Bench) -> None:
        """Name, description and schema of each tool arrive as they are."""
        for seen in await _seen(at, at.request(tools=(LOOK_UP, _NONE))):
            equal([one.name for one in seen.tools], ["look_up", "now"], "the tools' names")
            equal(seen.tools[0].description, LOOK_UP.description, "a tool's description")
            equal(seen.tools[0].parameters, LOOK_UP.parameters, "a tool's schema")

    @case("tools", "tool_choice")
    async def test_tool_choice(self, at: Bench) -> None:
        """The choice of tools arrives: may, must or must not be called."""
        for choice in ("none", "required"):
            request = at.request(tools=(LOOK_UP,), tool_choice=choice)
            for seen in await _seen(at, request):
                equal(seen.tool_choice, choice, "the tool choice")
        for seen in await _seen(at, at.request(tools=(LOOK_UP,))):
            check(seen.tool_choice in (None, "auto"), "A free choice came as another one.")

    @case("tools")
    async def test_tool_results(self, at: Bench) -> None:
        """Calls and results are sent back with their ids, names and contents."""
        calls = (
            ToolCallPart("call_1", "look_up", '{"word": "tide"}'),
            ToolCallPart("call_2", "look_up", '{"word": "ebb"}'),
        )
        results = tuple(
            ToolResultPart(one.call_id, "look_up", (TextPart(f'{{"found": "{one.call_id}"}}'),))
            for one in calls
        )
        messages = (
            Message.user("Look up both."),
            Message.assistant("I do.", *calls),
            Message.results(*results),
        )
        for seen in await _seen(at, at.request(messages=messages, tools=(LOOK_UP,))):
            equal(_flat(seen), _parts(messages), "the messages")

    @case("tools", "error_results")
    async def test_results_of_tools_that_failed(self, at: Bench) -> None:
        """A failed call's result is marked as failed."""
        messages = (
            Message.user("Look it up."),
            Message.assistant(ToolCallPart("call_1", "look_up", "{}")),
            Message.results(ToolResultPart("call_1", "look_up", (TextPart("No."),), is_error=True)),
        )
        for seen in await _seen(at, at.request(messages=messages, tools=(LOOK_UP,))):
            equal(_flat(seen), _parts(messages), "the messages")

    @case("tools")
    async def test_calls_with_arguments_that_are_no_json_go_back(self, at: Bench) -> None:
        """A conversation with a broken call can continue."""
        messages = (
            Message.user("Look it up."),
            Message.assistant(ToolCallPart("call_1", "look_up", '{"word": ')),
            Message.results(ToolResultPart("call_1", "look_up", (TextPart("Broken."),))),
        )
        for seen in await _seen(at, at.request(messages=messages, tools=(LOOK_UP,))):
            calls = [part for _, part in seen.flat if isinstance(part, ToolCallPart)]
            equal([(one.call_id, one.name) for one in calls], [("call_1", "look_up")], "the call")

    @case("images")
    async def test_images(self, at: Bench) -> None:
        """An image arrives byte by byte, with its type, between the texts."""
        picture = at.media.put(_PNG, "image/png", "tide.png")
        message = Message.user("Before.", picture, "After.")
        for seen in await _seen(at, at.request(messages=(message,))):
            equal(_flat(seen), _parts((message,)), "the messages")
        takes = at.provider.capabilities(at.model).takes("image/png")
        check(takes, "The capabilities say that the model takes no PNG.")

    @case("documents")
    async def test_documents(self, at: Bench) -> None:
        """A PDF arrives byte by byte, with its type."""
        message = Message.user(at.media.put(_PDF, "application/pdf", "tides.pdf"), "Sum it up.")
        for seen in await _seen(at, at.request(messages=(message,))):
            equal(_flat(seen), _parts((message,)), "the messages")
        takes = at.provider.capabilities(at.model).takes("application/pdf")
        check(takes, "The capabilities say that the model takes no PDF.")

    @case("tools", "result_media")
    async def test_images_in_tool_results(self, at: Bench) -> None:
        """A tool's image arrives within its result."""
        picture = at.media.put(_PNG, "image/png")
        messages = (
            Message.user("Draw."),
            Message.assistant(ToolCallPart("call_1", "look_up", "{}")),
            Message.results(ToolResultPart("call_1", "look_up", (TextPart("Look:"), picture))),
        )
        for seen in await _seen(at, at.request(messages=messages, tools=(LOOK_UP,))):
            equal(_flat(seen), _parts(messages), "the messages")

    @case("reasoning", "reasoning_return")
    async def test_reasoning_goes_back_to_where_it_came_from(self, at: Bench) -> None:
        """Reasoning is sent back unchanged to its own provider."""
        came = await at.both(thoughtful(at), at.request(reasoning="low"))
        messages = (Message.user("Think."), came.message, *_answered(came.message))
        tools = (LOOK_UP,) if came.tool_calls else ()
        request = at.request(messages=messages, tools=tools, reasoning="low")
        for seen in await _seen(at, request):
            equal(_flat(seen), _parts(messages), "the messages")

    @case("reasoning")
    async def test_reasoning_goes_to_nobody_else(self, at: Bench) -> None:
        """Another provider's reasoning isn't sent: not its text, nor its signature."""
        calls = () if "tools" in at.wire.lacks else (ToolCallPart("call_1", "look_up", "{}"),)
        foreign = ReasoningPart("A private thought.", "another-provider", "c2lnbmF0dXJl")
        message = Message.assistant(foreign, TextPart("Let me see."), *calls)
        messages = (Message.user("Think."), message, *_answered(message))
        at.server.answer(_DONE)
        await at.streamed(at.request(messages=messages, tools=(LOOK_UP,) if calls else ()))
        body = at.server.raw[-1].body

        check(b"private thought" not in body, "Another provider's reasoning was sent.")
        check(b"c2lnbmF0dXJl" not in body, "Another provider's signature was sent.")
        kept = [one for one in _parts(messages) if not isinstance(one[1], ReasoningPart)]
        equal(_flat(at.server.seen[-1]), kept, "the messages")

    @case("temperature")
    async def test_temperature(self, at: Bench) -> None:
        """The temperature arrives, zero too."""
        for temperature in (0.0, 0.5):
            for seen in await _seen(at, at.request(temperature=temperature)):
                equal(seen.temperature, temperature, "the temperature")

    @case()
    async def test_max_output_tokens(self, at: Bench) -> None:
        """The bound arrives."""
        for seen in await _seen(at, at.request(max_output_tokens=321)):
            equal(seen.max_output_tokens, 321, "the bound")

    @case("stop")
    async def test_stop(self, at: Bench) -> None:
        """The texts that end the answer arrive."""
        for seen in await _seen(at, at.request(stop=("END", "###"))):
            equal(seen.stop, ("END", "###"), "the stops")

    @case("response_format")
    async def test_response_format(self, at: Bench) -> None:
        """The answer's schema arrives."""
        schema = {
            "type": "object",
            "properties": {"height": {"type": "number"}},
            "required": ["height"],
            "additionalProperties": False,
        }
        for seen in await _seen(at, at.request(response_format=ResponseFormat(schema, "tide"))):
            equal(seen.response_schema, schema, "the schema")

    @case("reasoning_effort")
    async def test_reasoning_effort(self, at: Bench) -> None:
        """Thinking is switched on and off by the request."""
        for effort in ("low", "medium", "high"):
            for seen in await _seen(at, at.request(reasoning=effort)):
                equal(seen.thinks, True, f"whether effort {effort} asks for reasoning")
        for seen in await _seen(at, at.request(reasoning="none")):
            check(not seen.thinks, "Reasoning was asked for, though it was refused.")


async def _seen(at: Bench, request: LlmRequest) -> tuple[SeenRequest, SeenRequest]:
    """Return the request as the server read it: streamed, and whole."""
    at.server.forget()
    at.server.answer(_DONE)
    await at.streamed(request)
    await at.generated(request)
    first, second = at.server.seen
    return first, second


def _answered(message: Message) -> tuple[Message, ...]:
    """Return the results of a message's calls, and the user's next message."""
    results = tuple(
        ToolResultPart(one.call_id, one.name, (TextPart("1"),)) for one in message.tool_calls
    )
    return (Message.results(*results),) if results else (Message.user("Go on."),)


def _flat(seen: SeenRequest) -> list[tuple[str, object]]:
    """Return the parts that arrived; a result without a name gets that of its call."""
    names = {part.call_id: part.name for _, part in seen.flat if isinstance(part, ToolCallPart)}
    return _parts(
        tuple(
            Message(one.role, tuple(_named(part, names) for part in one.parts))
            for one in seen.messages
        )
    )


def _named(part: Part, names: dict[str, str]) -> Part:
    if isinstance(part, ToolResultPart) and not part.name:
        return attrs.evolve(part, name=names.get(part.call_id, ""))
    return part


def _parts(messages: tuple[Message, ...]) -> list[tuple[str, object]]:
    """Return the parts with their roles, in a form that can be compared."""
    return [(one.role, _plain(part)) for one in messages for part in one.parts]


def _plain(part: Part) -> object:
    if isinstance(part, ToolCallPart):
        return ("call", part.call_id, part.name, json.loads(part.arguments_json))
    if isinstance(part, ReasoningPart):
        return ReasoningPart(part.text, "", part.opaque)
    if isinstance(part, MediaPart):
        return ("media", part.handle, part.media_type)
    if isinstance(part, ToolResultPart):
        return ("result", part.call_id, part.name, part.is_error, *map(_plain, part.content))
    return part
