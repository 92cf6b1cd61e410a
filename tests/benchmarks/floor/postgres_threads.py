"""The floor of a thread on PostgreSQL: what its contract demands of the database, in SQL by hand.

What has to be durable before what, and what must be refused, is that of a thread; nothing else is:

- A row that others find by its id, its parent and as active; with its owner, lease, fence, limits,
  cost, and the end of its transcript; a result; its signed file, twice; its records.
- An account that never holds more than its ceiling, with each charge; closed with the row.
- Each write of the owner names its fence, so that one whose thread was taken over writes nothing.
- A change of its status is told by NOTIFY as it commits: others wait for its end.
- The row comes first, then its claim, its file and its first record; the hold before the request,
  the intent before the call, all before the end. What may come together is one transaction, sent as
  one pipeline, as somebody writes who knows the driver.

It has no trees of budgets, no continuations, no requests to stop, no locks, and signs nothing.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

import psycopg

__all__ = ["BareThreads"]

_TABLES = """
    CREATE TABLE threads (thread_id text PRIMARY KEY, parent_id text, item text NOT NULL,
        status text NOT NULL, pid bigint, lease float8, fence bigint NOT NULL DEFAULT 0,
        limits text, cost bigint NOT NULL DEFAULT 0, length bigint NOT NULL DEFAULT 0, digest text,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(), ended_at timestamptz);
    CREATE INDEX ON threads (created_at) WHERE ended_at IS NULL;
    CREATE INDEX ON threads (parent_id) WHERE parent_id IS NOT NULL;
    CREATE TABLE accounts (thread_id text PRIMARY KEY REFERENCES threads, state text NOT NULL,
        held bigint NOT NULL DEFAULT 0, spent bigint NOT NULL DEFAULT 0,
        held_tokens bigint NOT NULL DEFAULT 0, spent_tokens bigint NOT NULL DEFAULT 0,
        ceiling bigint NOT NULL);
    CREATE TABLE charges (thread_id text REFERENCES accounts, turn bigint, held bigint NOT NULL,
        spent bigint, PRIMARY KEY (thread_id, turn));
    CREATE TABLE results (thread_id text PRIMARY KEY REFERENCES threads, body text NOT NULL);
    CREATE TABLE records (thread_id text, start bigint, body text NOT NULL,
        PRIMARY KEY (thread_id, start));
    CREATE TABLE files (thread_id text PRIMARY KEY, body text NOT NULL);
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('threads', NEW.thread_id); RETURN NULL; END $$;
    CREATE TRIGGER tell AFTER UPDATE OF status ON threads FOR EACH ROW EXECUTE FUNCTION tell();
"""
_LIMITS = json.dumps({"turns": 8, "tokens": 100_000, "depth": 5, "duration_seconds": 3600})
_RESULT = json.dumps({"status": "success", "text": "x" * 300})
_TURN = {"turn": 1, "role": "assistant", "text": "x" * 300}
_LINE = json.dumps({"timestamp": 1.5, "thread_id": "t", "payload": _TURN}) + "\n"
_DIGEST = "a" * 64

_REGISTER = (
    "INSERT INTO threads (thread_id, item, status, pid, lease) VALUES (%s, %s, 'created', 1, %s)"
)
_OPEN = "INSERT INTO accounts (thread_id, state, ceiling) VALUES (%s, 'open', %s)"
_CLAIM = (
    "UPDATE threads SET status = 'running', lease = %s, limits = %s, fence = fence + 1"
    " WHERE thread_id = %s AND status = 'created'"
)
_FILE = "INSERT INTO files VALUES (%s, %s)"
_RECORD = (
    "INSERT INTO records SELECT thread_id, %s, %s FROM threads WHERE thread_id = %s AND fence = 1"
)
_HOLD = (
    "UPDATE accounts SET held = held + 50, held_tokens = held_tokens + 20"
    " WHERE thread_id = %s AND state = 'open' AND held + spent + 50 <= ceiling"
)
_CHARGE = "INSERT INTO charges VALUES (%s, %s, 50)"
_HEAD = "UPDATE threads SET lease = %s, length = %s, digest = %s WHERE thread_id = %s AND fence = 1"
_SETTLE = "UPDATE charges SET spent = 30 WHERE thread_id = %s AND turn = %s AND spent IS NULL"
_SPEND = (
    "UPDATE accounts SET held = held - 50, spent = spent + 30, held_tokens = held_tokens - 20,"
    " spent_tokens = spent_tokens + 10 WHERE thread_id = %s"
)
_EXCHANGE = (
    "UPDATE accounts SET spent = spent + 30, spent_tokens = spent_tokens + 10"
    " WHERE thread_id = %s AND state = 'open' AND held + spent + 30 <= ceiling"
)
_CLOSE = (
    "UPDATE accounts SET held = held - 50, spent = spent + 30, held_tokens = held_tokens - 20,"
    " spent_tokens = spent_tokens + 10, state = 'completed' WHERE thread_id = %s"
)
_END = (
    "UPDATE threads SET status = 'completed', cost = %s, length = %s, digest = %s,"
    " fence = fence + 1, ended_at = clock_timestamp() WHERE thread_id = %s AND fence = 1"
)
_KEEP = "INSERT INTO results VALUES (%s, %s)"
_REWRITE = "UPDATE files SET body = %s WHERE thread_id = %s"

Statement = tuple[str, Sequence[object]]


class BareThreads:
    """Threads by hand, in a schema of a server."""

    def __init__(self, address: str, schema: str) -> None:
        self._schema = schema
        self._connection: psycopg.Connection[Any] = psycopg.connect(
            address, autocommit=True, options=f"-c search_path={schema}"
        )

    def set_up(self) -> None:
        """Make the tables."""
        self._connection.execute(f"CREATE SCHEMA {self._schema}; {_TABLES}".encode())

    def _write(self, *statements: Statement) -> None:
        """Run statements as one transaction, which a pipeline is."""
        with self._connection.pipeline():
            for statement, values in statements:
                self._connection.execute(statement.encode(), values)

    def open(self, thread_id: str) -> None:
        """Register, claim and open a thread."""
        self.register(thread_id)
        self.claim(thread_id)

    def register(self, thread_id: str) -> None:
        """Write a thread's row."""
        self._write((_REGISTER, (thread_id, "directive:acme/research", time.time() + 60)))

    def claim(self, thread_id: str) -> None:
        """Open its account, claim it, write its file and the first record."""
        self._write(
            (_OPEN, (thread_id, 2**40)),
            (_CLAIM, (time.time() + 60, _LIMITS, thread_id)),
            (_FILE, (thread_id, "x" * 800)),
            (_RECORD, (0, _LINE, thread_id)),
        )

    def hold(self, thread_id: str, turn: int, *, records: bool = False) -> None:
        """Hold what a request costs, with the records before it."""
        self._write(
            *self._records(thread_id, turn * 1000, 2 * records),
            (_HOLD, (thread_id,)),
            (_CHARGE, (thread_id, turn)),
            (_HEAD, (time.time() + 60, 1000, _DIGEST, thread_id)),
        )

    def settle(self, thread_id: str, turn: int) -> None:
        """Charge what it did cost."""
        self._write(
            (_SETTLE, (thread_id, turn)),
            (_SPEND, (thread_id,)),
            (_HEAD, (time.time() + 60, 1000, _DIGEST, thread_id)),
        )

    def call(self, thread_id: str, turn: int) -> None:
        """Write the intent to call a tool, with the records before it."""
        self._write(*self._records(thread_id, turn * 1000 + 500, 2))

    def exchange(self, thread_id: str, turn: int) -> None:
        """Charge a request, and hold for the next one, with the records before it."""
        self._write(
            *self._records(thread_id, (turn + 1) * 1000, 2),
            (_SETTLE, (thread_id, turn)),
            (_EXCHANGE, (thread_id,)),
            (_CHARGE, (thread_id, turn + 1)),
            (_HEAD, (time.time() + 60, 2000, _DIGEST, thread_id)),
        )

    def end(self, thread_id: str, turn: int) -> None:
        """Write the last records, settle, close the account, and end the row."""
        self._write(
            *self._records(thread_id, turn * 1000 + 900, 3),
            (_SETTLE, (thread_id, turn)),
            (_CLOSE, (thread_id,)),
            (_END, (30 * turn, 3000, _DIGEST, thread_id)),
            (_KEEP, (thread_id, _RESULT)),
            (_REWRITE, ("y" * 800, thread_id)),
        )

    def _records(self, thread_id: str, start: int, lines: int) -> list[Statement]:
        return [(_RECORD, (start, _LINE * lines, thread_id))] if lines else []

    def thread(self, thread_id: str, *, turns: int = 1) -> None:
        """Write what a thread leaves, from its start to its end, with a call between two turns."""
        self.register(thread_id)
        self.run(thread_id, turns=turns)

    def run(self, thread_id: str, *, turns: int = 1) -> None:
        """Write what a thread leaves that has a row."""
        self.claim(thread_id)
        self.hold(thread_id, 1, records=True)
        for turn in range(1, turns):
            self.call(thread_id, turn)
            self.exchange(thread_id, turn)
        self.end(thread_id, turns)
