"""The cache of the results of a graph's tools, keyed by all that they depend on, and signed.

Permissions are checked and the whole chain is verified before a lookup, so a cached result reveals
nothing that the call itself would not. The verified bytes run from sealed snapshots, which are
named by their digests, and the plan holds these names. So a key consists of the plan, the hashes of
the chain, and the program.

An entry is one file, written in one step, so it is never partial. It owns its bytes, so deleting it
affects nothing else.

Source: docs/design/graphs.md#remembered-results; decisions 16 and 41.
"""

import hashlib
import hmac
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import anyio.to_thread

from ryecore.chain.model import Chain
from ryecore.errors import StateError
from ryecore.graph.walk.calls import Call, Unkeyed
from ryecore.items.files import is_left_over, write_atomically
from ryecore.items.signature import utc_now
from ryecore.lillux.digests import read_digest
from ryecore.lillux.keys import SigningKey
from ryecore.policy import CallContext
from ryecore.policy.context import CALL_ID, THREAD_ID, THREAD_MARK
from ryecore.runs.ports import Dispatcher, Planned
from ryecore.state.attestation import GRAPHS_FOLDER, attested_folder
from ryecore.state.model import Durability
from ryecore.state.records import canonical_json, holds, load_run_key, sign_record
from ryecore.state.refusals import advice

__all__ = ["MAX_AGE_DAYS", "MAX_RESULT_BYTES", "Entries", "ResultsCache", "result_key", "secret_of"]

MAX_AGE_DAYS: Final = 30
"""The most days that a result is cached."""

MAX_ENTRIES: Final = 5_000
"""The most results; beyond it, the oldest are deleted."""

MAX_RESULT_BYTES: Final = 1024 * 1024
"""The largest result, as JSON, that is cached."""

_KIND: Final = "graph-result"
_NAME: Final = re.compile(r"[0-9a-f]{64}\.json")
_MAX_FILE_BYTES: Final = 8 * MAX_RESULT_BYTES  # its text stands in JSON once more, escaped
_PRUNE_EVERY: Final = 200
_LEFT_OVER_S: Final = 3600.0
_AGE: Final = timedelta(days=MAX_AGE_DAYS)


class Entries:
    """The cached results of a project's graphs. The run key is in the user's `.ai`."""

    def __init__(
        self,
        project_root: Path,
        user_root: Path,
        durability: Durability,
        *,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        self._state = project_root / "state"
        self._user_root = user_root
        self._durable = durability == "machine"
        self._max_entries = max_entries
        self._folder: Path | None = None
        self._signer: SigningKey | None = None
        self._puts = 0

    @property
    def signer(self) -> SigningKey:
        """The run key."""
        if self._signer is None:
            self._signer = load_run_key(self._user_root)
        return self._signer

    @property
    def folder(self) -> Path:
        """The folder of the entries, outside of what a copied repository can contain."""
        if self._folder is None:
            mine = attested_folder(self._state, GRAPHS_FOLDER, self._user_root).private / "results"
            try:
                mine.mkdir(mode=0o700, exist_ok=True)
            except OSError as problem:
                raise StateError(
                    f"{mine} can't be made: {problem.strerror}.",
                    next_step=advice(problem),
                ) from problem
            self._folder = mine
        return self._folder

    def get(self, key: str) -> tuple[object] | None:
        """Return a result; None where it is missing, can't be proved, or is too old."""
        try:
            content, _ = read_digest(str(self._path(key)), max_bytes=_MAX_FILE_BYTES)
            record = json.loads(content)
            if not isinstance(record, dict) or record.get("key") != key:
                return None
            if not holds(_KIND, record, self.signer.public):
                return None
            began = datetime.fromisoformat(record["created_at"])
            if datetime.now(UTC) - began > _AGE:
                return None
            return (json.loads(record["result"]),)
        except (OSError, ValueError, TypeError, KeyError, RecursionError, StateError):
            return None  # the result is computed and written again

    def put(self, key: str, item_id: str, result: object) -> str:
        """Store a result, and return why it isn't stored; empty where it is."""
        try:
            text = json.dumps(result, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return "its result isn't JSON"
        if len(text) > MAX_RESULT_BYTES:
            return f"its result is larger than {MAX_RESULT_BYTES} bytes"
        record = {"key": key, "item_id": item_id, "created_at": utc_now(), "result": text}
        try:
            content = json.dumps(sign_record(_KIND, record, self.signer)).encode()
            write_atomically(self._path(key), content, mode=0o600, durable=self._durable)
            if self._puts % _PRUNE_EVERY == 0:
                self.prune()
        except OSError as problem:
            return f"it can't be written: {problem.strerror}"
        except StateError as problem:
            return problem.message
        self._puts += 1
        return ""

    def prune(self) -> None:
        """Delete entries that are too old, and the oldest beyond the bound."""
        now = time.time()
        found: list[tuple[float, str]] = []
        for one in self._listed():
            with suppress(FileNotFoundError):  # another process was faster
                age_s = now - one.stat(follow_symlinks=False).st_mtime
                if _NAME.fullmatch(one.name):
                    found.append((age_s, one.path))
                elif is_left_over(one.name) and age_s > _LEFT_OVER_S:
                    Path(one.path).unlink()
        found.sort()
        old = [path for age_s, path in found[: self._max_entries] if age_s > _AGE.total_seconds()]
        for path in (*old, *(path for _, path in found[self._max_entries :])):
            Path(path).unlink(missing_ok=True)

    def clear(self) -> int:
        """Delete all entries."""
        count = 0
        try:
            for one in self._listed():
                if _NAME.fullmatch(one.name) or is_left_over(one.name):
                    with suppress(FileNotFoundError):
                        Path(one.path).unlink()
                        count += one.name[0] != "."
        except OSError as problem:
            raise StateError(
                f"{problem.filename} can't be removed: {problem.strerror}.",
                next_step="See that the folder can be written.",
            ) from problem
        return count

    def _listed(self) -> Iterator[os.DirEntry[str]]:
        with os.scandir(self.folder) as entries:
            yield from entries

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


_VERSION: Final = "rye-graph-result-v1"
_SHELLS_OWN: Final = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES"})
"""The variables of a shell and its window, which differ between shells."""


def secret_of(key: SigningKey) -> bytes:
    """Return the user's secret for making keys, so that no value can be guessed from a key."""
    return hashlib.sha256(f"{_VERSION}\n".encode() + key.pem).digest()


_IGNORED: Final = frozenset({*_SHELLS_OWN, CALL_ID, THREAD_ID, THREAD_MARK})


def why_unkeyed(planned: Planned) -> str:
    """Return why the result of a call can't be cached; empty where it can."""
    chain, plan = planned.chain, planned.plan
    if planned.is_served_here:
        return "ryecore itself answers it, from its current state"
    if chain.is_own_process:
        return "it is a graph, whose own nodes are cached instead"
    if chain.is_pinned is not None:
        return "an MCP server answers it, possibly differently each time"
    if plan.keep is not None:
        return "its process serves several calls, and may remember earlier ones"
    if not chain.is_verified:
        return "its chain is not verified"
    if plan.deps == "unverified":
        return "it can import packages that no signed lock vouches for"
    return ""


def result_key(secret: bytes, planned: Planned) -> str:
    """Return the key of a call's result: 64 hex digits.

    The key doesn't depend on the timeout, or on values that identify the single call.
    """
    plan = planned.plan
    seen = {
        "version": _VERSION,
        "chain": _hashes(planned.chain),
        "command": plan.command,
        "program": _program(plan.command),
        "args": list(plan.args),
        "cwd": plan.cwd,
        "env": {name: value for name, value in plan.env.items() if name not in _IGNORED},
        "stdin": hashlib.sha256(plan.stdin).hexdigest(),
        "max_output_bytes": plan.max_output_bytes,
    }
    return hmac.new(secret, canonical_json(seen), hashlib.sha256).hexdigest()


def _hashes(chain: Chain) -> list[list[str]]:
    return [[one.item_id, one.space, one.integrity] for one in chain.all_elements]


def _program(command: str) -> list[object]:
    """Return the identity of a program's file, by its metadata."""
    real = os.path.realpath(command)
    try:
        seen = os.stat(real)
    except OSError:  # the file is missing: the call itself reports it
        return [real]
    return [real, seen.st_size, seen.st_mtime_ns]


class ResultsCache:
    """The cache of results, by all that they depend on."""

    def __init__(self, dispatcher: Dispatcher, entries: Entries) -> None:
        self._dispatcher = dispatcher
        self._entries = entries
        self._secret: bytes | None = None

    async def key(self, call: Call) -> str | Unkeyed:
        """Return the key of a call that the caller may make, or why it has none."""
        if call.action.ref.kind != "tool":
            return Unkeyed("a directive may answer differently each time")
        ctx = CallContext(call.ctx.capabilities, deadline=call.ctx.deadline)
        planned = await self._dispatcher.plan(call.action.ref, call.params, ctx=ctx)
        why = why_unkeyed(planned)
        if why:
            return Unkeyed(why)
        if self._secret is None:
            self._secret = secret_of(self._entries.signer)
        return result_key(self._secret, planned)

    async def get(self, key: str) -> tuple[object] | None:
        """Return the cached result; None where it is missing or can't be proved."""
        return await anyio.to_thread.run_sync(self._entries.get, key)

    async def clear(self) -> int:
        """Delete all cached results."""
        return await anyio.to_thread.run_sync(self._entries.clear)

    async def put(self, call: Call, key: str, result: object) -> Unkeyed | None:
        """Cache a result, if its dependencies haven't changed since before the call.

        Returns why it isn't cached; None where it is.
        """
        if await self.key(call) != key:
            return Unkeyed("its dependencies changed while it ran")
        item_id = str(call.action.ref)
        why = await anyio.to_thread.run_sync(self._entries.put, key, item_id, result)
        return Unkeyed(why) if why else None
