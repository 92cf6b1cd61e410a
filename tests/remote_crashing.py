"""A run on a node whose process at home is killed between any two writes, and what is found then.

`python -m tests.remote_crashing TEMPLATE WORK HOW=STEP ...` serves it; see `tests.killing`. The
node is a process of its own that lives on; `remotes.yaml` of the template names it.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio

from ryecore import Rye
from ryecore.errors import BudgetNotRegistered
from ryecore.state.store import ThreadStore
from ryecore.threads.result import ThreadResult
from tests.killing import check_account, lines_of, main
from tests.thread_host import COST, PlannedWorkspace
from tests.workspace import Workspace

__all__ = ["REF", "furnish"]

REF: Final = "directive:acme/work"
_MARKS: Final = "marks"
_WHO: Final = '<input name="who" type="string" required="true">Whose mark it is.</input>'
_FIRST_DEATH: Final = 60
"""While the run is followed."""


def furnish(root: Path, marks: Path) -> PlannedWorkspace:
    """Make the workspace that each life runs in a copy of.

    Args:
        root: Its folder.
        marks: The file into which the node's tool writes.
    """
    planned = PlannedWorkspace(Workspace(root))
    planned.write("work", ["mark", {"text": "{input:who}"}], inputs=_WHO)
    (root / _MARKS).write_text(str(marks))
    return planned


def _marks(root: Path) -> int:
    return lines_of(Path((root / _MARKS).read_text())).count(str(root))


def _open(root: Path) -> Rye:
    return Workspace(root, is_new=False).open()


async def _live(root: Path) -> ThreadResult | None:
    async with _open(root) as rye:
        rows = await rye.threads.list(all=True)
        if rows:  # begun by one that was killed: whoever looks goes on with it
            for row in rows:
                await rye.threads.wait(row.thread_id)
            return None
        done = await rye.execute(REF, {"who": str(root)}, thread="fork", target="remote:gpu")
        assert isinstance(done, ThreadResult)
        return done


async def _recover(root: Path) -> dict[str, Any]:
    await _live(root)
    store = ThreadStore.open(root / "project/.ai", root / "user/.ai")
    rows = await store.look_at_all(lambda registry: registry.list_threads(limit=100))
    assert len(rows) == 1, rows
    (row,) = rows
    assert row.ended, row
    check_account(store, row)
    spent = 0
    with suppress(BudgetNotRegistered):  # it died before it had an account
        spent = (await store.ledger.account(row.thread_id)).own.spend_microcents
    found = (row.status, _marks(root), spent)
    assert found in (("completed", 1, 2 * COST), ("error", 0, 0)), (found, row)
    return {"found": found}


class _Life:
    def live(self, root: Path, how: str) -> None:
        done = anyio.run(_live, root)
        assert done is None or done.status == "success", done

    def recover(self, root: Path, how: str) -> str:
        return json.dumps(anyio.run(_recover, root))

    def first_death(self, how: str) -> int | None:
        return _FIRST_DEATH if how == "again" else None


if __name__ == "__main__":
    main(_Life())
