"""What was found in files that travel, kept by their stats, also from one process to the next.

Source: docs/design/remote.md#at-home; decision 66.
"""

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ryecore.caches import BoundedDict
from ryecore.frozen import frozen
from ryecore.items.files import write_atomically
from ryecore.lillux.digests import read_digest
from ryecore.remote.protocol.snapshots import MAX_FILES
from ryecore.remote.rules import CONTENT_RULE
from ryecore.remote.selection import FileIdentity

__all__ = ["Inspected", "InspectedFiles", "has_rested"]

_MAX_BYTES: Final = 64 * 1024 * 1024
_SAVED_FROM_FILES: Final = 64
_SAVED_FROM_BYTES: Final = 8 * 1024 * 1024
_SETTLED_NS: Final = 100_000_000
"""A file that was changed more recently could change again without another time stamp."""


@frozen
class Inspected:
    """What was found in a file: its hash, and why it never travels, if so."""

    identity: FileIdentity
    sha256: str
    reason: str | None


def has_rested(identity: FileIdentity) -> bool:
    """Return whether every later change would show in the stat."""
    changed_ns = max(identity.mtime_ns, identity.ctime_ns)
    return time.time_ns() - changed_ns > _SETTLED_NS


class InspectedFiles:
    """The files that were read, by path; a file whose stat has changed has to be read again.

    Threads may use it at the same time. Reading many files, or a large one, is remembered in a
    file of the user's cache. That is not a matter of trust: whoever can write there could read
    what travels.

    Args:
        path: The file of the cache.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: BoundedDict[str, Inspected] = BoundedDict(2 * MAX_FILES)
        self._is_loaded = False
        self._fresh_files = 0
        self._fresh_bytes = 0

    def find(self, source: str, identity: FileIdentity) -> Inspected | None:
        """Return what was found in a file that has not changed; None where it has to be read."""
        if not self._is_loaded:
            self._is_loaded = True
            self._load()
        known = self._known.get(source)
        return known if known is not None and known.identity == identity else None

    def add(self, source: str, found: Inspected) -> None:
        """Keep what was found in a file, if every later change will show."""
        if has_rested(found.identity):
            self._known[source] = found
            self._fresh_files += 1
            self._fresh_bytes += found.identity.size_bytes
        else:
            self._known.pop(source, None)

    def __contains__(self, source: str) -> bool:
        return source in self._known

    def save(self, sources: Iterable[str]) -> None:
        """Write what is known of files to the cache, where reading them again takes long."""
        if self._fresh_files < _SAVED_FROM_FILES and self._fresh_bytes < _SAVED_FROM_BYTES:
            return
        self._fresh_files = self._fresh_bytes = 0
        files: dict[str, list[object]] = {}
        for source in sources:
            found = self._known.get(source)
            if found is not None:
                one = found.identity
                files[source] = [
                    one.device, one.inode, one.size_bytes, one.mtime_ns, one.ctime_ns,
                    found.sha256, found.reason,
                ]  # fmt: skip
        content = json.dumps({"rule": CONTENT_RULE, "files": files}).encode()
        with suppress(OSError, UnicodeError):  # it is made anew
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(self._path, content, mode=0o600, durable=False)

    def _load(self) -> None:
        try:
            content, _ = read_digest(self._path, max_bytes=_MAX_BYTES)
            document: Any = json.loads(content)
            if document["rule"] != CONTENT_RULE:
                return
            for source, (*numbers, sha256, reason) in document["files"].items():
                is_known = reason is None or isinstance(reason, str)
                if is_known and isinstance(sha256, str) and all(type(n) is int for n in numbers):
                    self._known[source] = Inspected(FileIdentity(*numbers), sha256, reason)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return
