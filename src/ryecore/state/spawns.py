"""Count the children that a thread has started, against its limit of spawns.

Source: docs/design/threads.md#spawns; decision 40.
"""

import sqlite3

from attrs import frozen

from ryecore.errors import LimitReached
from ryecore.state.model import thread_not_found

__all__ = ["SpawnLimit", "count_spawn"]


@frozen
class SpawnLimit:
    """How many children a parent may start.

    Attributes:
        most: How many in all; None for any number.
    """

    most: int | None


def count_spawn(run: sqlite3.Connection, parent_id: str, limit: SpawnLimit) -> int:
    """Count one more child of a thread, unless that would pass its limit.

    Args:
        run: The transaction.
        parent_id: The thread that starts one.
        limit: How many it may start.

    Returns:
        How many it has started now, this one included.

    Raises:
        LimitReached: It has started that many already (`spawns_exceeded`). Nothing is counted.
        ThreadNotFound: There is none of this id.
    """
    row = run.execute(
        "SELECT spawn_count FROM threads WHERE thread_id = ?", (parent_id,)
    ).fetchone()
    if row is None:
        raise thread_not_found(parent_id)
    count: int = row[0]
    if limit.most is not None and count >= limit.most:
        raise LimitReached(
            f"The thread {parent_id} has started {count} children of the {limit.most} that it may "
            "start.",
            next_step="Give it a higher limit of spawns, or do the rest in itself.",
            thread_id=parent_id,
            limit_code="spawns_exceeded",
            current_value=count,
            current_max=limit.most,
        )
    run.execute("UPDATE threads SET spawn_count = ? WHERE thread_id = ?", (count + 1, parent_id))
    return count + 1
