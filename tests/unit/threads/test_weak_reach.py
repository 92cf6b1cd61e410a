"""A thread that tries to read, drive or impersonate another one, which isn't below it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.errors import RyeError
from ryecore.state.waiting import run_blocking
from ryecore.testing import FunctionProvider, ScriptedProvider, call, say
from ryecore.tools import tool
from tests.interpreter import PYTHON
from tests.scripted_host import ScriptedHost

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]

WEAK = "<execute><tool>acme/allowed</tool><tool>host/*</tool></execute>"
ORCHESTRATOR = "<execute><tool>rye/agent/threads/orchestrator</tool></execute>"
SECRET = "THE-SECRET-TEXT"


def iter_of(*turns: Any) -> Any:
    script = iter(turns)
    return lambda _: next(script)


OPERATIONS = (
    "wait_threads", "cancel_thread", "kill_thread", "get_status", "aggregate_results", "get_chain",
    "chain_search", "read_transcript", "resume_thread", "handoff_thread",
)  # fmt: skip


def operation(name: str, thread_id: str) -> dict[str, Any]:
    given: dict[str, Any] = {"operation": name}
    if name in ("wait_threads", "aggregate_results"):
        given["thread_ids"] = [thread_id]
    else:
        given["thread_id"] = thread_id
    if name == "wait_threads":
        given["timeout_s"] = 1
    if name == "chain_search":
        given["query"] = "a"
    if name == "resume_thread":
        given["message"] = "Go on for me."
    return given


async def test_no_operation_tells_another_thread_from_none(tmp_path: Path) -> None:
    ids: dict[str, str] = {}
    told: dict[str, list[str]] = {}

    def model(request: Any) -> Any:
        text = request.messages[0].text
        if "I am the weak one" in text:
            if len(request.messages) == 1:
                calls = None
                for thread_id in ids.values():
                    for name in OPERATIONS:
                        one = call("rye_orchestrator", operation(name, thread_id))
                        calls = one if calls is None else calls + one
                return calls
            parts = iter(request.messages[-1].parts)
            for who, thread_id in ids.items():
                told[who] = [next(parts).text.replace(thread_id, "ID") for _ in OPERATIONS]
            return say("That is all.")
        if "I am the sibling" in text:
            return say("A sibling's words.")
        if len(request.messages) == 1:
            return call("rye_execute", {"item_id": "directive:acme/sibling", "thread": "fork"})
        if len(request.messages) == 3:
            ids["sibling"] = json.loads(request.messages[-1].parts[0].text)["thread_id"]
            (ids["parent"],) = host.running()
            ids["nobody"] = "acme/nobody/nobody-1795335626"
            return call("rye_execute", {"item_id": "directive:acme/weak", "thread": "fork"})
        return say("ok")

    host = Roles(tmp_path, model=model)
    host.write("acme/sibling", "I am the sibling.", permissions="")
    host.write("acme/weak", "I am the weak one.", permissions=ORCHESTRATOR)
    lone = host.write("acme/sibling2", "I am the sibling.", permissions="")
    ids["stranger"] = (await host.run(lone)).thread_id
    may = ORCHESTRATOR.replace("</execute>", "<directive>acme/*</directive></execute>")
    done = await host.run(host.write("acme/boss", "I am the boss.", permissions=may))
    assert done.ended == "completed"
    assert set(told) == {"stranger", "sibling", "parent", "nobody"}
    for who in ("stranger", "sibling", "parent"):
        assert told[who] == told["nobody"], who
    assert all("sibling's words" not in one for said in told.values() for one in said)
    rows = {one.thread_id: one for one in await host.store().registry.list_threads()}
    assert rows[ids["sibling"]].status == rows[ids["parent"]].status == "completed"
    assert len(rows) == 4  # nothing was resumed or handed off


class Roles(ScriptedHost):
    """A host that knows which threads run without a parent."""

    def running(self) -> list[str]:
        rows = run_blocking(self.store().registry.list_threads())
        return [one.thread_id for one in rows if one.status == "running" and one.parent_id is None]


async def test_a_handle_of_another_threads_result_opens_nothing(tmp_path: Path) -> None:
    async def run(script: list[Any]) -> tuple[Any, Any]:
        provider = FunctionProvider(iter_of(*script), provider_id="scripted")
        host.providers["scripted"] = provider
        return await host.run(host.write("acme/weak")), provider

    @tool
    def much() -> str:
        """A lot."""
        return SECRET * 1000

    host = ScriptedHost(tmp_path, tools=[much])
    done, provider = await run([call("much"), say("ok")])
    shown = provider.requests[-1].messages[-1].parts[0].text
    folder = host.store().folder_of(done.thread_id) / "artifacts"
    (kept,) = [one.name for one in folder.rglob("*") if one.is_file()]
    handle = next(
        word.strip(".,")
        for word in shown.split()
        if word.startswith("sha256:") or kept[:12] in word
    )
    own = [call("much"), call("read_artifact", {"handle": handle}), say("ok")]
    again, provider = await run(own)
    assert SECRET in provider.requests[-1].messages[-1].parts[0].text  # its own it reads
    tries = None
    for one in (handle, kept, f"../../{done.thread_id}/artifacts/{kept}", str(folder / kept)):
        each = call("read_artifact", {"handle": one})
        tries = each if tries is None else tries + each
    _, provider = await run([tries, say("ok")])
    parts = provider.requests[-1].messages[-1].parts
    assert all(part.is_error for part in parts)
    assert SECRET not in repr(parts)
    assert again.ended == "completed"


# Impersonation


async def test_a_tools_process_is_told_of_no_parent_and_may_claim_none(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("acme_env"), say("ok"))
    host.workspace.python(
        "acme/env",
        "import os\n\ndef execute(params, project_path):\n"
        "    return sorted(one for one in os.environ if 'RYE' in one or 'KEY' in one)\n",
    )
    done = await host.run(
        host.write("acme/weak", permissions="<execute><tool>acme/env</tool></execute>")
    )
    said = host.model.requests[-1].messages[-1].parts[0]
    assert not said.is_error
    assert "RYE_PARENT_THREAD_ID" not in said.text
    assert "TOKEN" not in said.text
    environ = {
        **host.workspace.environ,
        "RYE_PARENT_THREAD_ID": done.thread_id,
        "ANTHROPIC_API_KEY": "sk-never-sent",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    claimed = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [PYTHON, "-m", "ryecore.cli", "execute", "directive:acme/weak", "--thread", "fork"],
            cwd=host.workspace.project, env=environ, capture_output=True, text=True, check=False,
        )
    )  # fmt: skip
    assert claimed.returncode != 0
    assert "Traceback" not in claimed.stderr
    assert "RYE_PARENT_THREAD_ID" in claimed.stderr
    assert len(await host.store().registry.list_children(done.thread_id)) == 0


@pytest.mark.parametrize("edit", ["capabilities", "limits", "parent", "signature", "other's"])
async def test_an_edited_parent_starts_nothing(tmp_path: Path, edit: str) -> None:
    host = ScriptedHost(tmp_path)
    host.write("acme/child", "I am the child.")
    ref = host.write("acme/boss", permissions=WEAK)
    other = host.write("acme/strong", permissions="<execute><tool>*</tool></execute>")

    def change(request: Any) -> Any:
        (thread_id,) = (
            one.thread_id
            for one in run_blocking(host.store().registry.list_threads())
            if one.status == "running"
        )
        path = host.store().folder_of(thread_id) / "thread.json"
        said = json.loads(path.read_text())
        if edit == "capabilities":
            said["capabilities"] = ["*"]
        elif edit == "limits":
            said["limits"]["spend"] = 1000
        elif edit == "parent":
            said["parent_id"] = None
            said["status"] = "created"
        elif edit == "signature":
            said["_signature"] = "A" * 86
        else:  # a file that is signed, of another thread
            said = json.loads(
                (host.store().folder_of(strong.thread_id) / "thread.json").read_text()
            )
        path.write_text(json.dumps(said))
        return call("rye_execute", {"item_id": "directive:acme/child", "thread": "fork"})

    host.providers["scripted"] = FunctionProvider(lambda _: say("ok"), provider_id="scripted")
    strong = await host.run(other)
    provider = ScriptedProvider([change, say("ok")])
    host.providers["scripted"] = provider
    may = WEAK.replace("</execute>", "<directive>acme/*</directive></execute>")
    await host.run(host.write("acme/boss", permissions=may))
    part = provider.requests[-1].messages[-1].parts[0]
    assert part.is_error or json.loads(part.text)["status"] == "error", part.text
    assert "I am the child." not in repr([one.messages for one in provider.requests])
    assert ref


async def test_an_edited_transcript_is_not_gone_on_from(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 1}), say("two"), say("three"))
    ref = host.write("acme/x")
    async with host.open() as rye:
        done = await rye.execute(ref, thread="fork")
        path = host.store().folder_of(done.thread_id) / "transcript.jsonl"
        path.write_text(path.read_text().replace('"two"', '"owt"'))
        with pytest.raises(RyeError, match=r"transcript|altered|verify"):
            await rye.threads.resume(done.thread_id, "Go on.")
        with pytest.raises(RyeError):
            await rye.threads.fork(done.thread_id, at=1, message="Go on.")
    assert len(host.model.requests) == 2
