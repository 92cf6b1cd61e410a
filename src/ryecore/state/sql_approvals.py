"""The approvals of threads' calls in a database.

Source: decision 81.
"""

# ruff: noqa: S608 - what is spliced into statements is this module's own constants

import json
from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final

from typing_extensions import override

from ryecore.errors import InputError
from ryecore.state.approvals import ApprovalStore, ThreadApproval
from ryecore.state.schema import NOW
from ryecore.state.statements import Row, SqlDatabase

__all__ = ["SqlApprovals"]

_OF_CHAIN: Final = """WITH RECURSIVE earlier (thread_id) AS (
        VALUES (?) UNION SELECT threads.continuation_of FROM threads JOIN earlier USING (thread_id)
        WHERE threads.continuation_of IS NOT NULL
    ) SELECT approvals.* FROM approvals JOIN earlier USING (thread_id)
    WHERE call_digest = ? AND NOT used
    AND (thread_id = ? OR NOT EXISTS (SELECT 1 FROM threads
        WHERE threads.thread_id = approvals.thread_id AND completed_at IS NULL))
    ORDER BY approved IS NULL, approvals.rowid LIMIT 1"""


class SqlApprovals(ApprovalStore):
    """The approvals in a database."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    @override
    async def request(self, asked: ThreadApproval) -> ThreadApproval:
        digest = asked.call_digest
        async with self._database.writing() as run:
            of_chain = (asked.thread_id, digest, asked.thread_id)
            row = run.execute(_OF_CHAIN, of_chain).fetchone()
            # Two calls of one answer wait each for an answer of their own.
            if row is not None and (
                row["thread_id"] != asked.thread_id or row["call_id"] == asked.call_id
            ):
                run.execute(
                    "UPDATE approvals SET thread_id = ?, call_id = ? WHERE approval_id = ?",
                    (asked.thread_id, asked.call_id, row["approval_id"]),
                )
                return _approval(
                    {**dict(row), "thread_id": asked.thread_id, "call_id": asked.call_id}
                )
            approval_id = token_hex(8)
            run.execute(
                "INSERT INTO approvals (approval_id, thread_id, call_id, tool_name, arguments,"
                " reason, tool_digest, call_digest, requested_at)"
                f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, {NOW})",
                (
                    approval_id,
                    asked.thread_id,
                    asked.call_id,
                    asked.tool_name,
                    json.dumps(asked.arguments),
                    asked.reason,
                    asked.tool_digest,
                    digest,
                ),
            )
            return _approval(
                run.execute(
                    "SELECT * FROM approvals WHERE approval_id = ?", (approval_id,)
                ).fetchone()
            )

    @override
    async def get(self, approval_id: str) -> ThreadApproval | None:
        rows = await self._database.fetch(
            "SELECT * FROM approvals WHERE approval_id = ?", (approval_id,)
        )
        return _approval(rows[0]) if rows else None

    @override
    async def use(self, approval_id: str) -> bool:
        async with self._database.writing() as run:
            return bool(
                run.execute(
                    "UPDATE approvals SET used = TRUE"
                    " WHERE approval_id = ? AND NOT used AND approved IS NOT NULL",
                    (approval_id,),
                ).rowcount
            )

    @override
    async def answer(
        self, thread_id: str, call: str | None, approve: bool, reason: str
    ) -> ThreadApproval:
        async with self._database.writing() as run:
            rows = run.execute(
                "SELECT * FROM approvals WHERE thread_id = ? AND approved IS NULL"
                " AND (CAST(? AS TEXT) IS NULL OR ? IN (approval_id, call_id))",
                (thread_id, call, call),
            ).fetchall()
            if not rows:
                which = "" if call is None else f" {call}"
                raise InputError(
                    f"No call{which} of the thread {thread_id} waits for an approval.",
                    next_step="See those that wait: rye threads approvals",
                )
            if len(rows) > 1:
                ids = ", ".join(f"{row['approval_id']} ({row['tool_name']})" for row in rows)
                raise InputError(
                    f"Several calls of the thread {thread_id} wait for an approval: {ids}.",
                    next_step="Name the one that you mean with --call ID.",
                )
            approval_id = rows[0]["approval_id"]
            run.execute(
                f"UPDATE approvals SET approved = ?, answer_reason = ?, answered_at = {NOW}"
                " WHERE approval_id = ?",
                (approve, reason, approval_id),
            )
            return _approval({**dict(rows[0]), "approved": approve, "answer_reason": reason})

    @override
    async def pending(self) -> tuple[ThreadApproval, ...]:
        rows = await self._database.fetch(
            "SELECT approvals.* FROM approvals JOIN threads USING (thread_id)"
            " WHERE approved IS NULL AND completed_at IS NULL ORDER BY approvals.rowid"
        )
        return tuple(map(_approval, rows))


def _approval(row: Row | Mapping[str, Any]) -> ThreadApproval:
    return ThreadApproval(
        row["approval_id"],
        row["thread_id"],
        row["call_id"],
        row["tool_name"],
        json.loads(row["arguments"]),
        row["reason"],
        row["tool_digest"],
        None if row["approved"] is None else bool(row["approved"]),
        row["answer_reason"],
        row["requested_at"],
    )
