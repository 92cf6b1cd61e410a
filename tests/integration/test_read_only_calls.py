"""Calls of read-only tools wait for no record, and a process that dies in one loses nothing."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ryecore import Rye
from ryecore.state.store import ThreadStore
from tests.forking import ROOT, Forked
from tests.killing import check_account, lines_of
from tests.matrix import IS_SOAK
from tests.postgres import Killer, killing, needs_server, own_schema
from tests.read_only_crashing import EFFECTS, LOOKS, furnish, options, resume_or_begin

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = [pytest.mark.anyio, needs_server]

LEAST_MESSAGES: Final = 15


@pytest.fixture
def state(postgres_address: str) -> str:
    """The address of a schema of the test's own."""
    return own_schema(postgres_address)


@pytest.fixture
def killer(state: str, tmp_path: Path) -> Iterator[Killer]:
    """Kills the processes whose state is at `state_between`."""
    with killing(_folder_of(state), tmp_path / "between") as killer:
        yield killer


def _folder_of(state: str) -> Path:
    folder = re.search("host=([^&]+)", state)
    assert folder is not None
    return Path(folder[1])


def _life(root: Path, state: str, killer: Killer) -> int:
    """Run the thread in a process, and return how that has ended."""
    between = state.replace(str(_folder_of(state)), str(root.parent / "between"))
    killer.count, killer.pid = 0, 0
    with Forked(
        ["tests.read_only_crashing", str(root), between], env=os.environ, cwd=ROOT
    ) as process:
        killer.pid = process.pid
        return process.wait()


@pytest.mark.timeout(1200)
async def test_whenever_its_process_is_killed_no_effect_is_lost_or_doubled(
    tmp_path: Path, postgres_address: str, killer: Killer, state: str
) -> None:
    whole = tmp_path / "whole"
    furnish(whole)
    assert _life(whole, state, killer) == 0
    count = killer.count
    assert count >= LEAST_MESSAGES
    killed = 0
    step = 1 if IS_SOAK else count // 4
    for number, at in enumerate(range(count - 3, count // 3, -step)):
        for is_done in (False, True) if IS_SOAK else (number % 2 == 0,):
            root = tmp_path / f"{at}-{is_done}"
            furnish(root)
            own = own_schema(postgres_address)
            killer.at, killer.is_done = at, is_done
            ended = _life(root, own, killer)
            killer.at = 0
            assert ended == -signal.SIGKILL or (ended == 0 and at > count * 2 // 3)
            killed += ended == -signal.SIGKILL
            await _recover(root, own)
    # Lives differ by some messages: what is written soon goes with the rows that follow, or not.
    assert killed, "it was killed nowhere"


async def _recover(root: Path, state: str) -> None:
    """Resume it in this process, and check its effects, records and account."""
    effects = lines_of(root / EFFECTS)
    async with Rye.open(root / "project", state=state, **options(root)) as rye:
        done = await resume_or_begin(rye)
        assert done is None or done.text == "done", done
        rows = await rye.threads.list(all=True)
        for row in rows:
            if row.transcript_head is not None:
                assert (await rye.threads.verify(row.thread_id)).ok
    store = ThreadStore.open(root / "project/.ai", root / "user/.ai", state=state)
    unknown: set[str] = set()
    for row in rows:
        check_account(store, row)
        if await store.records.exists(row.thread_id):
            records = [one async for one in store.records.read(row.thread_id)]
            begun = {
                one.payload["call_id"]
                for one in records
                if one.type == "tool_call_start" and "read_only" not in one.payload
            }
            came = {one.payload["call_id"] for one in records if one.type == "tool_call_result"}
            unknown |= begun - came
    store.close()
    after = lines_of(root / EFFECTS)
    assert len(after) == len(set(after)), f"{effects} became {after}"
    assert {"b", "d"} - set(after) <= unknown
    assert {"a", "c"} <= set(lines_of(root / LOOKS))


async def test_a_turn_with_such_a_call_takes_one_commit(tmp_path: Path, state: str) -> None:
    furnish(tmp_path / "root")
    address, _, schema = state.partition("&schema=")
    with psycopg.connect(address, options=f"-c search_path={schema}", autocommit=True) as other:

        def number() -> int:
            return int(other.execute("SELECT CAST(pg_current_xact_id() AS text)").fetchone()[0])

        async with Rye.open(
            tmp_path / "root/project", state=state, **options(tmp_path / "root")
        ) as rye:

            async def written() -> int:
                before = number()
                assert (await rye.execute("directive:acme/looks", thread="fork")).success
                return number() - before - 1

            await written()  # others use the server, too, so the least of some runs counts
            least = min([await written() for _ in range(3)])
    # Its row, its claim, its log; a hold; two turns that look, two that mark; its end.
    assert least <= 3 + 1 + 2 * 1 + 2 * 2 + 1
