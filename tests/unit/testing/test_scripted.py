import gc
import traceback
from contextlib import aclosing
from itertools import repeat

import anyio
import pytest

from ryecore.llm import (
    Capabilities,
    LlmError,
    LlmProvider,
    LlmRequest,
    LlmResult,
    MediaProvider,
    Message,
    StreamChunk,
    StreamEnd,
    StreamFold,
    TextDelta,
    Usage,
)
from ryecore.testing import (
    FunctionProvider,
    ScriptedMediaProvider,
    ScriptedProvider,
    Turn,
    call,
    cut,
    fail,
    hang,
    raw,
    say,
)

pytestmark = pytest.mark.anyio
HELLO = LlmRequest("some-model", (Message.user("Hello?"),))


async def streamed(provider: LlmProvider, request: LlmRequest = HELLO) -> LlmResult:
    fold = StreamFold(provider.provider_id, request.model)
    async for chunk in provider.stream(request, key="secret"):
        fold.add(chunk)
    assert fold.end is not None
    return fold.result()


async def test_each_request_takes_the_next_turn_streamed_or_whole() -> None:
    provider = ScriptedProvider(["One.", say("Two."), call("add", {"a": 1})])

    first, second = await streamed(provider), await provider.generate(HELLO, key="")
    third = await streamed(provider)

    assert (first.text, second.text) == ("One.", "Two.")
    assert third.tool_calls[0].name == "add"
    assert (first.model, first.provider) == ("some-model", "scripted")
    assert provider.requests == [HELLO] * 3
    assert (provider.open_streams, provider.closed) == (0, 0)


async def test_a_single_text_is_a_script_of_one_turn() -> None:
    assert (await streamed(ScriptedProvider("Hello."))).text == "Hello."


async def test_a_script_that_has_ended_says_so() -> None:
    provider = ScriptedProvider([])

    for ask in (streamed(provider), provider.generate(HELLO, key="")):
        with pytest.raises(LlmError, match="no turn left") as caught:
            await ask
        assert caught.value.kind == "bad_request"
        assert (caught.value.provider, caught.value.model) == ("scripted", "some-model")


async def test_a_script_may_be_endless() -> None:
    provider = ScriptedProvider(repeat(call("nope")))

    ids = [(await streamed(provider)).tool_calls[0].call_id for _ in range(3)]

    assert ids == ["call_1", "call_2", "call_3"]


async def test_a_function_in_the_script_sees_the_request() -> None:
    async def later(request: LlmRequest) -> Turn:
        return say(request.model)

    provider = ScriptedProvider([lambda request: request.messages[-1].text.upper(), later])

    assert (await streamed(provider)).text == "HELLO?"
    assert (await streamed(provider)).text == "some-model"


async def test_errors_are_raised_anew_with_their_facts() -> None:
    error = LlmError("Slow down.", next_step="Wait.", kind="rate_limit", retry_after_s=2.0)
    provider = ScriptedProvider([error, error])

    caught = []
    for _ in range(2):
        with pytest.raises(LlmError) as info:
            await streamed(provider)
        caught.append(info.value)

    assert caught[0] is not caught[1]
    assert all(
        (one.kind, one.retry_after_s, one.provider, one.next_step)
        == ("rate_limit", 2.0, "scripted", "Wait.")
        for one in caught
    )
    assert "streamed" in "".join(traceback.format_tb(caught[0].__traceback__))
    assert provider.closed == 0


async def test_a_failure_in_the_middle_comes_after_what_was_said() -> None:
    provider = ScriptedProvider([say("half") + fail("unavailable", status=503)])
    chunks: list[StreamChunk] = []

    async def ask() -> None:
        async for chunk in provider.stream(HELLO, key=""):
            chunks.append(chunk)

    with pytest.raises(LlmError) as caught:
        await ask()

    assert chunks == [TextDelta("half")]
    assert (caught.value.kind, caught.value.status) == ("unavailable", 503)


async def test_a_cut_stream_has_no_end_and_is_no_whole_answer() -> None:
    provider = ScriptedProvider(repeat(say("half") + cut()))

    chunks = [chunk async for chunk in provider.stream(HELLO, key="")]

    assert chunks == [TextDelta("half")]
    with pytest.raises(LlmError) as caught:
        await provider.generate(HELLO, key="")
    assert caught.value.kind == "unavailable"


async def test_raw_chunks_come_as_they_are_even_after_the_end() -> None:
    chunks = (StreamEnd("stop"), TextDelta("late"), StreamEnd("stop"))

    came = [one async for one in ScriptedProvider([raw(*chunks)]).stream(HELLO, key="")]

    assert tuple(came) == chunks


@pytest.mark.parametrize("turn", [hang(), say("half") + hang()])
async def test_a_hang_ends_with_its_caller_and_is_counted(turn: Turn) -> None:
    provider = ScriptedProvider([turn, turn])

    for ask in (streamed, lambda asked: asked.generate(HELLO, key="")):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, provider)
            await anyio.wait_all_tasks_blocked()
            assert provider.open_streams == 1
            tasks.cancel_scope.cancel()

    assert (provider.open_streams, provider.closed) == (0, 2)


async def test_a_stream_that_is_left_early_is_counted() -> None:
    provider = ScriptedProvider(["A long story, told in pieces."], chunk_chars=1)

    async with aclosing(provider.stream(HELLO, key="")) as stream:  # type: ignore[type-var]
        async for _ in stream:
            break

    assert (provider.open_streams, provider.closed) == (0, 1)


async def test_a_checkpoint_a_chunk_lets_a_cancel_in() -> None:
    provider = ScriptedProvider(["A long story."], chunk_chars=1, checkpoints=True)
    came = 0

    with anyio.CancelScope() as scope:
        async for _ in provider.stream(HELLO, key=""):
            came += 1
            if came == 3:
                scope.cancel()

    assert came == 3
    gc.collect()
    assert (provider.open_streams, provider.closed) == (0, 1)


async def test_usage_is_the_turns_own_or_the_providers() -> None:
    provider = ScriptedProvider(["a", say("b", usage=Usage(7, 8))], usage=Usage(1, 2))

    assert (await streamed(provider)).usage == Usage(1, 2)
    assert (await streamed(provider)).usage == Usage(7, 8)
    assert (await streamed(ScriptedProvider(["a"]))).usage is None


async def test_a_function_is_a_whole_provider() -> None:
    def echo(request: LlmRequest) -> str:
        return f"You said: {request.messages[-1].text}"

    provider = FunctionProvider(echo, provider_id="echo", capabilities=Capabilities(tools=False))

    assert (await streamed(provider)).text == "You said: Hello?"
    assert (await provider.generate(HELLO, key="")).provider == "echo"
    assert not provider.capabilities("any").tools


async def test_what_a_function_raises_the_provider_raises() -> None:
    def broken(request: LlmRequest) -> str:
        raise ZeroDivisionError

    provider = FunctionProvider(broken)

    with pytest.raises(ZeroDivisionError):
        await streamed(provider)
    assert (provider.open_streams, provider.closed) == (0, 0)


async def test_fakes_are_providers_and_show_no_key() -> None:
    provider = ScriptedProvider(["a"])
    await streamed(provider)

    assert isinstance(provider, LlmProvider)
    assert isinstance(FunctionProvider(lambda _: ""), LlmProvider)
    assert isinstance(ScriptedMediaProvider([]), MediaProvider)
    assert not isinstance(provider, MediaProvider)
    assert repr(provider) == "<ScriptedProvider 'scripted': 1 request>"
    assert "secret" not in repr(vars(provider))


def test_pieces_have_a_length() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ScriptedProvider([], chunk_chars=0)
