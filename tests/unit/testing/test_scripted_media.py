import anyio
import pytest

from ryecore.llm import (
    LlmError,
    LlmRequest,
    MediaJob,
    MediaRequest,
    MediaResult,
    MemoryMediaStore,
    Message,
    Usage,
)
from ryecore.testing import ScriptedMediaProvider, make

pytestmark = pytest.mark.anyio
DRAW = MediaRequest("painter", "A tide.")


async def test_media_are_made_at_once() -> None:
    store = MemoryMediaStore()
    provider = ScriptedMediaProvider([make(b"one", b"two", usage=Usage(3, 4))])

    made = await provider.generate_media(DRAW, key="", media=store)

    assert isinstance(made, MediaResult)
    assert [store.read(part) for part in made.media] == [b"one", b"two"]
    assert (made.model, made.usage) == ("painter", Usage(3, 4))
    assert provider.media_requests == [DRAW]


async def test_a_job_is_done_when_it_was_looked_after_often_enough() -> None:
    store = MemoryMediaStore()
    provider = ScriptedMediaProvider([make(b"film", media_type="video/mp4", polls=2)])

    job = await provider.generate_media(DRAW, key="", media=store)
    assert isinstance(job, MediaJob)
    assert await provider.poll_media(job.job_id, key="", media=store) == job
    made = await provider.poll_media(job.job_id, key="", media=store)

    assert isinstance(made, MediaResult)
    assert made.media[0].media_type == "video/mp4"
    assert provider.polls == [job.job_id] * 2


async def test_requests_and_jobs_fail_as_the_script_says() -> None:
    store = MemoryMediaStore()
    error = LlmError("No.", kind="content_filter")
    provider = ScriptedMediaProvider([error, make(polls=1, error=error)])

    with pytest.raises(LlmError) as caught:
        await provider.generate_media(DRAW, key="", media=store)
    assert (caught.value.kind, caught.value.model) == ("content_filter", "painter")
    job = await provider.generate_media(DRAW, key="", media=store)
    assert isinstance(job, MediaJob)
    with pytest.raises(LlmError, match=r"No\."):
        await provider.poll_media(job.job_id, key="", media=store)
    with pytest.raises(LlmError, match="no job"):
        await provider.poll_media("another", key="", media=store)
    with pytest.raises(LlmError, match="no media left"):
        await provider.generate_media(DRAW, key="", media=store)


async def test_media_that_never_come_end_with_their_caller() -> None:
    provider = ScriptedMediaProvider([make()])

    with anyio.move_on_after(0.01) as scope:
        await provider.generate_media(DRAW, key="", media=MemoryMediaStore())

    assert scope.cancelled_caught


async def test_it_can_talk_too() -> None:
    provider = ScriptedMediaProvider([], ["Hello."])

    answer = await provider.generate(LlmRequest("m", (Message.user("Hi."),)), key="")

    assert answer.text == "Hello."
