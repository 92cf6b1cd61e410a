"""The end of a claimed tool, also while the state can't be reached."""

from pathlib import Path

import anyio
import pytest

from ryecore.errors import CallCancelled, StateUnreachable
from ryecore.policy import CancelToken
from ryecore.runs.claimed import End, run_claimed
from ryecore.runs.request import Claimed
from ryecore.state.store import ThreadStore

pytestmark = pytest.mark.anyio


class Away(ThreadStore):
    """A store whose rows can't be read."""

    async def look(self, thread_id: str) -> object:  # type: ignore[override]
        raise StateUnreachable("The state can't be reached.", next_step="Wait.")


@pytest.mark.parametrize("kind", [ThreadStore, Away])
async def test_a_cancelled_tool_is_cancelled_also_where_its_row_cannot_be_read(
    tmp_path: Path, kind: type[ThreadStore]
) -> None:
    store = kind.open(tmp_path / "project/.ai", tmp_path / "user/.ai")
    await store.registry.register("run", "tool:x")
    claimed = Claimed("run", fence=await store.registry.claim("run"))

    async def execute() -> End:
        raise CallCancelled("x was cancelled by its caller.")

    status, result = await run_claimed(store, claimed, "tool:x", CancelToken(), execute)
    assert status == "cancelled"
    assert "cancelled by its caller" in str(result["error"])


async def test_what_a_tool_raises_comes_as_itself(tmp_path: Path) -> None:
    store = ThreadStore.open(tmp_path / "project/.ai", tmp_path / "user/.ai")
    await store.registry.register("run", "tool:x")
    claimed = Claimed("run", fence=await store.registry.claim("run"))

    async def execute() -> End:
        await anyio.lowlevel.checkpoint()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_claimed(store, claimed, "tool:x", CancelToken(), execute)
