"""The system prompt that a directive names: the host composes it."""

from pathlib import Path

import pytest

from ryecore.testing import call
from tests.scripted_host import TOTAL, ScriptedHost

pytestmark = pytest.mark.anyio


async def test_it_needs_no_permission_of_the_thread_to_fetch(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("rye_directive_return", {"total": 3}))
    host.workspace.write("knowledge/acme/rules.md", "The rules.\n")
    ref = host.write("acme/x", outputs=TOTAL, more="<context><system>acme/rules</system></context>")
    done = await host.run(ref)
    assert done.ended == "completed", done.error
    assert host.model.requests[0].system == "The rules."


@pytest.mark.parametrize("position", ["before", "after"])
async def test_what_stands_around_the_prompt_needs_it(tmp_path: Path, position: str) -> None:
    host = ScriptedHost(tmp_path, call("rye_directive_return", {"total": 3}))
    host.workspace.write("knowledge/acme/rules.md", "The rules.\n")
    more = f"<context><{position}>acme/rules</{position}></context>"
    done = await host.run(host.write("acme/x", outputs=TOTAL, more=more))
    assert done.ended == "error"
    assert not host.model.requests
