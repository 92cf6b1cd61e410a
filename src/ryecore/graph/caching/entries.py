"""The files that results are kept in: one each, signed, bounded in age and number.

An entry is one file and is written in one step, so there is no half of one; and it owns its bytes,
so that what is thrown away is nobody else's.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from ryecore.errors import StateError
from ryecore.items.files import is_left_over, write_atomically
from ryecore.items.signature import utc_now
from ryecore.lillux.digests import read_digest
from ryecore.lillux.keys import SigningKey
from ryecore.state.advice import advice
from ryecore.state.attestation import GRAPHS_FOLDER, attested_folder
from ryecore.state.model import Durability
from ryecore.state.records import holds, load_run_key, sign_record

__all__ = ["MAX_AGE_DAYS", "MAX_ENTRIES", "MAX_RESULT_BYTES", "Entries"]

MAX_AGE_DAYS: Final = 30
"""How many days a result is remembered at most."""

MAX_ENTRIES: Final = 5_000
"""How many results are kept; where there are more, the oldest go."""

MAX_RESULT_BYTES: Final = 1024 * 1024
"""How large a result may be, as JSON, that is remembered."""

_KIND: Final = "graph-result"
_NAME: Final = re.compile(r"[0-9a-f]{64}\.json")
_MAX_FILE_BYTES: Final = 8 * MAX_RESULT_BYTES  # its text stands in JSON once more, escaped
_PRUNE_EVERY: Final = 200
_LEFT_OVER_S: Final = 3600.0
_AGE: Final = timedelta(days=MAX_AGE_DAYS)


class Entries:
    """The results that a project's graphs remember.

    Args:
        project_root: The project's `.ai` folder.
        user_root: The user's `.ai` folder, which holds the run key.
        durability: What an entry survives.
        max_entries: How many are kept.
    """

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
        """The run key.

        Raises:
            StateError: It can't be made or read.
        """
        if self._signer is None:
            self._signer = load_run_key(self._user_root)
        return self._signer

    @property
    def folder(self) -> Path:
        """Where they stand: where no copy of a repository can put any.

        Raises:
            StateError: It can't be made.
        """
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
        """A result; None where there is none, or it isn't provably this one, or is too old."""
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
            return None  # it is computed again, and written anew

    def put(self, key: str, item_id: str, result: object) -> str:
        """Keep a result.

        Returns:
            Why it isn't kept; empty where it is.
        """
        try:
            text = json.dumps(result, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return "its result is no JSON"
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
        """Throw away what is too old, and of what is too much the oldest."""
        now = time.time()
        found: list[tuple[float, str]] = []
        for one in self._listed():
            with suppress(FileNotFoundError):  # another process was quicker
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
        """Throw all of them away.

        Returns:
            How many there were.

        Raises:
            StateError: They can't be removed.
        """
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
