"""How many transactions a thread makes: two to begin, one a turn, one to end it."""

from pathlib import Path

import pytest

from ryecore.llm import LlmRequest
from ryecore.testing import Turn, call, say
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio

FRAME_HEADER_BYTES, LOG_HEADER_BYTES = 24, 32


def commits(state: Path) -> int:
    """The commits in the write-ahead log: a frame that ends one has the database's size.

    Source: https://www.sqlite.org/fileformat2.html#walformat.
    """
    (log,) = state.glob("threads/.*/threads.db-wal")
    content = log.read_bytes()
    page = int.from_bytes(content[8:12], "big")
    frames = range(LOG_HEADER_BYTES, len(content), FRAME_HEADER_BYTES + page)
    return sum(int.from_bytes(content[at + 4 : at + 8], "big") > 0 for at in frames)


@pytest.mark.parametrize("turns", [2, 6])
async def test_a_thread_makes_a_transaction_a_turn_and_three_around_them(
    tmp_path: Path, turns: int
) -> None:
    """One registers it, one claims it; a hold settles the answer before it; one ends it."""

    def model(request: LlmRequest) -> Turn:
        is_last = len(request.messages) == 2 * turns - 1
        return say("Done.") if is_last else call("add", {"a": 1, "b": 2})

    host = ScriptedHost(tmp_path, model=model)
    ref = host.write("acme/x", limits='turns="9"')
    async with host.open() as rye:
        await rye.execute(ref, thread="fork")
        before = commits(host.workspace.path("state"))
        done = await rye.execute(ref, thread="fork")
        made = commits(host.workspace.path("state")) - before
    assert done.cost.turns == turns
    assert made == 3 + turns
