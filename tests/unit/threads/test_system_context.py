"""The system prompt that a directive names: the host composes it."""

from pathlib import Path

import pytest

from ryecore.testing import call
from tests.stage import TOTAL, Stage

pytestmark = pytest.mark.anyio


async def test_it_needs_no_permission_of_the_thread_to_fetch(tmp_path: Path) -> None:
    stage = Stage(tmp_path, call("rye_directive_return", {"total": 3}))
    stage.house.write("knowledge/acme/rules.md", "The rules.\n")
    ref = stage.write(
        "acme/x", outputs=TOTAL, more="<context><system>acme/rules</system></context>"
    )
    done = await stage.run(ref)
    assert done.state == "completed", done.error
    assert stage.model.requests[0].system == "The rules."


@pytest.mark.parametrize("position", ["before", "after"])
async def test_what_stands_around_the_prompt_needs_it(tmp_path: Path, position: str) -> None:
    stage = Stage(tmp_path, call("rye_directive_return", {"total": 3}))
    stage.house.write("knowledge/acme/rules.md", "The rules.\n")
    more = f"<context><{position}>acme/rules</{position}></context>"
    done = await stage.run(stage.write("acme/x", outputs=TOTAL, more=more))
    assert done.state == "error"
    assert not stage.model.requests
