"""A thread whose transcript is long holds up nothing else."""

from pathlib import Path
from typing import Any

import pytest

from ryecore.llm.request import LlmRequest
from ryecore.llm.result import Usage
from ryecore.testing import FunctionProvider, Turn, call, say
from tests.loops import loop_load
from tests.scripted_host import ScriptedHost
from tests.unit.threads.test_thread_events import same

pytestmark = pytest.mark.anyio


async def test_a_long_thread_keeps_no_event_loop_busy_as_it_ends_or_is_read(tmp_path: Path) -> None:
    turns, text = 30, "y" * 200_000

    def answer(request: LlmRequest) -> Turn:
        done = sum(message.role == "assistant" for message in request.messages)
        if len(model.requests) == 1 or done == turns:
            return say("The end.")
        return say(text) + call("add", {"a": done, "b": 1})

    model = FunctionProvider(
        answer, provider_id="scripted", usage=Usage(10, 10), chunk_chars=2000, checkpoints=True
    )
    host = ScriptedHost(tmp_path, model=model)
    ref = host.write("acme/x", limits=f'turns="{turns + 1}" tokens="10000000"')
    async with host.open() as rye:
        await rye.execute(ref, thread="fork")  # imports what a thread needs
        async with loop_load() as load:
            done: Any = await rye.execute(ref, thread="fork")
            thread = await rye.threads.thread(str(done.thread_id))
            heard = [event async for event in thread.events(follow=False)]
    assert done.success, done.error
    same(heard, host, done.thread_id)
    assert load.worst_s < 0.02
