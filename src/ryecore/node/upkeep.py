"""Upkeep: what was unused for the configured time is removed, but never what a run uses.

Source: decision 75.
"""

import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Final, TypeAlias

import anyio

from ryecore.errors import RyeError, StateError
from ryecore.node.callers import Callers
from ryecore.node.content import NodeContent
from ryecore.node.files import remove_tree
from ryecore.node.run_table import RunTable
from ryecore.state.database import Database
from ryecore.state.waiting import run_in_thread

__all__ = ["RemoveHanded", "keep_up", "remove_unused"]

_log: Final = logging.getLogger("ryecore.node")
_EACH_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)


RemoveHanded: TypeAlias = Callable[[str, float], Awaitable[None]]
"""Removes what travelled to workers for a caller, by its fingerprint, and wasn't used since."""


async def keep_up(
    database: Database,
    content: NodeContent,
    callers: Callers,
    unused_days: float,
    remove_handed: RemoveHanded | None = None,
) -> None:
    """Remove what is unused, now and each hour, until cancelled."""
    while True:
        since_s = time.time() - unused_days * _DAY_S
        try:
            if remove_handed is not None:  # first: a caller without a folder isn't listed
                for fingerprint in await run_in_thread(_list_callers, content):
                    await remove_handed(fingerprint, min(since_s, time.time() - _DAY_S))
        except RyeError as error:
            _log.error("What travelled to workers can't be removed now: %s", error)
        try:
            await remove_unused(database, content, callers, since_s)
        except (OSError, StateError) as error:  # a full disk, or too many open files
            _log.error("The node's upkeep failed, and is tried again later: %s", error)
        except Exception:  # of any kind: it mustn't end the node
            _log.exception("The node's upkeep failed, and is tried again later.")
        await anyio.sleep(min(_EACH_S, unused_days * _DAY_S / 4))


async def remove_unused(
    database: Database, content: NodeContent, callers: Callers, unused_since_s: float
) -> None:
    """Remove runs that ended before a time, and snapshots and objects that were not used since.

    Args:
        database: `node.db`.
        content: What the callers have pushed.
        callers: Who may call. The folder of anybody else is removed once nothing in it is used.
        unused_since_s: The time, in seconds since the epoch.
    """
    ended_before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unused_since_s))
    async with database.writing() as run:
        run.execute(  # what a caller has spent counts further on
            "INSERT INTO spent (caller, microcents) SELECT caller, sum(spend_microcents) FROM runs"
            " WHERE ended_at < ? GROUP BY caller ON CONFLICT (caller) DO UPDATE"
            " SET microcents = microcents + excluded.microcents",
            (ended_before,),
        )
        run.execute(
            "DELETE FROM events WHERE (caller, thread_id) IN"
            " (SELECT caller, thread_id FROM runs WHERE ended_at < ?)",
            (ended_before,),
        )
        run.execute("DELETE FROM runs WHERE ended_at < ?", (ended_before,))
    table = RunTable(database)
    pinned, stored = await table.list_snapshots(), await table.stored_bytes()
    for fingerprint in await run_in_thread(_list_callers, content):
        used = pinned.get(fingerprint, ())
        is_known = callers.find(fingerprint) is not None
        await run_in_thread(
            _remove_of_caller,
            content,
            fingerprint,
            unused_since_s,
            used,
            stored.get(fingerprint, 0),
            is_known,
        )


def _list_callers(content: NodeContent) -> list[str]:
    names = sorted(path.name for path in content.folder.glob("*") if path.is_dir())
    return [name for name in names if _FINGERPRINT.fullmatch(name)]


def _remove_of_caller(
    content: NodeContent,
    fingerprint: str,
    unused_since_s: float,
    pinned: Collection[str],
    database_bytes: int,
    is_known: bool,
) -> None:
    of_caller = content.of_fingerprint(fingerprint)
    is_empty = of_caller.forget_unused(unused_since_s, pinned, database_bytes)
    if is_empty and not pinned and not is_known:
        content.close(fingerprint)
        with suppress(OSError):
            remove_tree(of_caller.folder)
