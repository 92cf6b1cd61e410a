"""What a thread costs a PostgreSQL server that machines share: statements, bytes, time and locks.

The server is durable, as a real one is, and counts for itself: `pg_stat_statements` the statements
and their time, the write-ahead log its bytes, and the system the processor time of its processes.
"""

import asyncio
import json
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from tests.benchmarks.governed import Threads
from tests.benchmarks.harness import report
from tests.postgres import find_binaries, serving_postgres

__all__ = ["processor_ms", "run"]

_TURNS = (1, 3)
_THREADS, _AT_ONCE = 300, 8
# Of the numbers in /proc/PID/stat, behind the state.
_PARENT, _USER, _SYSTEM, _ENDED_USER, _ENDED_SYSTEM = 0, 10, 11, 12, 13
_COUNTING = ("shared_preload_libraries=pg_stat_statements", "track_io_timing=on")


def run() -> None:
    """Measure threads of one and of three turns; say so where there is no server."""
    if find_binaries() is None:
        print("database: left out, as PostgreSQL's server is missing (apt-get install postgresql).")
        return
    with tempfile.TemporaryDirectory() as folder:
        for turns in _TURNS:
            with serving_postgres(is_durable=True, options=_COUNTING) as address:
                _measure(Path(folder), turns, address)


def _measure(folder: Path, turns: int, address: str) -> None:
    own = folder / f"turns-{turns}"
    own.mkdir()
    threads = Threads(own, turns)
    asyncio.run(_run(threads, address, 4))  # makes the tables, and warms the caches
    with psycopg.connect(address, autocommit=True) as server:
        server.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        server.execute("SELECT pg_stat_statements_reset()")
        before = _read(server)
        began = time.perf_counter()
        asyncio.run(_run(threads, address, _THREADS))
        wall_s = time.perf_counter() - began
        after = _read(server)
        slowest = server.execute(
            "SELECT left(query, 90), calls, total_exec_time FROM pg_stat_statements "
            "ORDER BY total_exec_time DESC LIMIT 5"
        ).fetchall()
    each = {name: (after[name] - before[name]) / _THREADS for name in after}
    report(
        f"a thread of {turns} turns on PostgreSQL, what it costs the server",
        each["processor_ms"],
        "ms",
        statements=round(each["statements"], 1),
        transactions=round(each["transactions"], 1),
        executing_ms=round(each["executing_ms"], 3),
        log_bytes=round(each["log_bytes"]),
        rows_written=round(each["rows_written"], 1),
        stored_bytes=round(each["stored_bytes"]),
        threads_a_second=round(_THREADS / wall_s, 1),
        goal="as little as can be",
    )
    for query, calls, total_ms in slowest:
        words = " ".join(query.split())
        print(
            json.dumps({"statement": words, "calls": calls / _THREADS, "ms": total_ms / _THREADS})
        )


def _read(server: "psycopg.Connection[Any]") -> dict[str, float]:
    """Return the server's counters, once all that others did is counted: as their sessions end."""
    others = "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'"
    while server.execute(others).fetchone() != (0,):
        time.sleep(0.01)
    server.execute("SELECT pg_stat_force_next_flush()")
    counted = {
        "statements": "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements",
        "executing_ms": "SELECT coalesce(sum(total_exec_time), 0) FROM pg_stat_statements",
        "transactions": "SELECT sum(xact_commit) FROM pg_stat_database",
        "log_bytes": "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')",
        "rows_written": "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables",
        "stored_bytes": "SELECT pg_database_size(current_database())",
    }
    read: dict[str, float] = {}
    for name, query in counted.items():
        [(value,)] = server.execute(query).fetchall()  # type: ignore[arg-type]
        read[name] = float(value or 0)
    read["processor_ms"] = processor_ms(server)
    return read


def processor_ms(connection: "psycopg.Connection[Any]") -> float:
    """Return the processor time of a server: its own, that of its processes, and of ended ones."""
    [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
    server = _stat(pid)[_PARENT]
    while True:  # until none has ended meanwhile, whose time would be counted twice or not at all
        own = _stat(server)[_USER : _ENDED_SYSTEM + 1]
        ticks = sum(own)
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                stat = _stat(int(folder.name))
                if stat[_PARENT] == server:
                    ticks += sum(stat[_USER : _SYSTEM + 1])
        if _stat(server)[_ENDED_USER : _ENDED_SYSTEM + 1] == own[_ENDED_USER - _USER :]:
            return ticks * 1000 / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[int]:
    """Return the numbers behind the name and the state of a process, as proc(5) lists them."""
    return [
        int(one) for one in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1:]
    ]


async def _run(threads: Threads, address: str, count: int) -> None:
    """Run governed threads, several at once."""
    left = iter(range(count))
    async with threads.open(state=address) as rye:

        async def work() -> None:
            for _ in left:
                await threads.run(rye)

        await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
