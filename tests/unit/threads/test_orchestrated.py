"""A thread that looks after its children through the orchestrator, as a tool and as an item."""

import json
from pathlib import Path

import pytest

from ryecore.testing import call, say
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio

MAY = "<execute><directive>acme/*</directive><tool>rye/agent/threads/orchestrator</tool></execute>"


async def test_a_thread_starts_a_child_waits_for_it_and_reads_what_came_of_it(
    tmp_path: Path,
) -> None:
    def model(request):  # type: ignore[no-untyped-def]
        if "child" in request.messages[0].text:
            return say("I was here.")
        last = request.messages[-1].parts[0]
        match len(request.messages):
            case 1:
                return call(
                    "rye_execute",
                    {"item_id": "directive:acme/child", "thread": "fork", "async": True},
                )
            case 3:
                return call(
                    "rye_orchestrator",
                    {
                        "operation": "wait_threads",
                        "thread_ids": [json.loads(last.text)["thread_id"]],
                    },
                )
            case _:
                return say(last.text)

    host = ScriptedHost(tmp_path, model=model)
    host.write("acme/child", "I am the child.", permissions="")
    done = await host.run(host.write("acme/parent", permissions=MAY))
    assert done.ended == "completed"
    assert "I was here." in done.text


async def test_the_host_uses_it_as_an_item(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("hello"))
    ref = host.write("acme/x", permissions="")
    async with host.open() as rye:
        ended = await rye.execute(ref, thread="fork")
        seen = await rye.execute(
            "tool:rye/agent/threads/orchestrator",
            {"operation": "get_status", "thread_id": ended.thread_id},
        )
        gone = await rye.execute(
            "tool:rye/agent/threads/orchestrator",
            {"operation": "get_status", "thread_id": "acme/x/x-1"},
        )
    assert seen.data["status"] == "completed"
    assert gone.status == "error"
    assert "acme/x/x-1" in gone.error


async def test_a_thread_reaches_it_through_rye_execute_and_sees_its_own_alone(
    tmp_path: Path,
) -> None:
    seen: list[str] = []

    def model(request):  # type: ignore[no-untyped-def]
        if "mine" not in request.messages[0].text:
            return say("a stranger's words")
        if len(request.messages) > 1:
            seen.append(request.messages[-1].parts[0].text)
        if len(request.messages) > 3:
            return say("done")
        return call(
            "rye_execute",
            {
                "item_id": "tool:rye/agent/threads/orchestrator",
                "parameters": {"operation": "get_status", "thread_id": stranger},
            },
        )

    host = ScriptedHost(tmp_path, model=model)
    other = host.write("acme/other", permissions="")
    mine = host.write("acme/mine", "This is mine.", permissions=MAY)
    stranger = (await host.run(other)).thread_id
    await host.run(mine)
    assert "stranger's" not in seen[0]
    assert stranger in seen[0]
