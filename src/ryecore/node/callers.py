"""Callers: the author keys that the node's operator has allowed, with their scopes and quotas.

Source: docs/design/remote.md#on-the-node; decisions 65 and 67.
"""

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from ryecore.convert.strict import RECORDS, ConversionError
from ryecore.errors import ConfigError, SigningError
from ryecore.frozen import frozen
from ryecore.items.files import write_atomically
from ryecore.items.trust import is_past
from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.policy.permissions import allows
from ryecore.state.records import holds, sign_record

__all__ = ["DEFAULT_SCOPES", "METRICS_SCOPE", "Caller", "Callers"]

METRICS_SCOPE: Final = "rye.node.metrics"
DEFAULT_SCOPES: Final = ("rye.execute.*", "rye.fetch.*")
_KIND: Final = "node-caller"
_MAX_FILE_BYTES: Final = 256 * 1024
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


@frozen
class Caller:
    """Somebody who may run items on the node.

    Attributes:
        key: The public key that its requests are signed with.
        label: Its name for the operator.
        scopes: The capabilities that its runs may have at most, and the node's own scopes.
        not_after: When it ends, in UTC; None for no end.
        max_runs: How many runs it may have at once.
        max_bytes: How many bytes its objects and spaces may take.
        max_spend_microcents: What its runs may spend on models in all, in units of 1e-8 USD; None
            for no bound.
        trust: Whose keys count in its spaces.
    """

    key: PublicKey
    label: str = ""
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    not_after: str | None = None
    max_runs: int = 8
    max_bytes: int = 10 * 1024**3
    max_spend_microcents: int | None = None
    trust: Literal["caller", "operator"] = "caller"

    @property
    def fingerprint(self) -> str:
        """The fingerprint of its key."""
        return self.key.fingerprint

    @property
    def is_expired(self) -> bool:
        """Whether its time is over."""
        return is_past(self.not_after)

    def may(self, scope: str) -> bool:
        """Return whether a scope is among its own."""
        return allows(self.scopes, scope)


@frozen
class _CallerFile:
    """A caller as its file holds it."""

    public_key: str
    label: str
    scopes: tuple[str, ...]
    not_after: str | None
    max_runs: int
    max_bytes: int
    max_spend_microcents: int | None
    trust: Literal["caller", "operator"]


class Callers:
    """The files of the callers, each a record that the node's key signs.

    A file that was changed, or that another key signed, counts as none.
    """

    def __init__(self, folder: Path, key: SigningKey) -> None:
        self._folder = folder / "callers"
        self._key = key
        self._known: dict[str, tuple[tuple[int, int, int], Caller]] = {}

    def allow(self, caller: Caller) -> Path:
        """Write a caller's file, in place of an earlier one.

        Raises:
            ConfigError: The time of its end isn't one, or has passed, or the file can't be written.
        """
        if caller.not_after is not None and (
            _TIME.fullmatch(caller.not_after) is None or caller.is_expired
        ):
            raise ConfigError(
                f"{caller.not_after!r} is not a time in the future.",
                next_step="Write it in UTC, such as 2030-01-31T00:00:00Z.",
            )
        document = RECORDS.write(
            _CallerFile(
                caller.key.pem.decode(),
                caller.label,
                caller.scopes,
                caller.not_after,
                caller.max_runs,
                caller.max_bytes,
                caller.max_spend_microcents,
                caller.trust,
            )
        )
        signed = sign_record(_KIND, document, self._key)
        path = self._path(caller.fingerprint)
        try:
            self._folder.mkdir(exist_ok=True, mode=0o700)
            write_atomically(path, json.dumps(signed, indent=2).encode() + b"\n", mode=0o600)
        except OSError as problem:
            raise ConfigError(
                f"{path} can't be written: {problem.strerror}.",
                next_step="Run this as the user who owns the node's folder.",
            ) from None
        return path

    def find(self, fingerprint: str) -> Caller | None:
        """Return a caller by the fingerprint of its key, also an expired one; None for no valid."""
        if _FINGERPRINT.fullmatch(fingerprint) is None:
            return None
        try:
            found = os.stat(f"{self._folder}/{fingerprint}.json")
        except OSError:
            self._known.pop(fingerprint, None)
            return None
        if not stat.S_ISREG(found.st_mode):  # such as a pipe, whose reader would wait
            return None
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        known = self._known.get(fingerprint)
        if known is not None and known[0] == version:
            return known[1]
        caller = self._read(fingerprint)
        if caller is not None:
            self._known[fingerprint] = (version, caller)
        return caller

    def list(self) -> Sequence[Caller]:
        """Return all callers whose files are valid, by label and fingerprint."""
        names = sorted(path.stem for path in self._folder.glob("*.json"))
        found = (self.find(name) for name in names)
        return sorted((one for one in found if one), key=lambda one: (one.label, one.fingerprint))

    def invalid(self) -> Sequence[Path]:
        """Return the files that count as none."""
        return [path for path in sorted(self._folder.glob("*.json")) if not self.find(path.stem)]

    def revoke(self, fingerprint: str) -> bool:
        """Remove a caller's file. Returns whether there was one."""
        if _FINGERPRINT.fullmatch(fingerprint) is None:
            return False
        self._known.pop(fingerprint, None)
        try:
            self._path(fingerprint).unlink()
        except FileNotFoundError:
            return False
        except OSError as problem:
            raise ConfigError(
                f"{self._path(fingerprint)} can't be removed: {problem.strerror}.",
                next_step="Run this as the user who owns the node's folder.",
            ) from None
        return True

    def _path(self, fingerprint: str) -> Path:
        return self._folder / f"{fingerprint}.json"

    def _read(self, fingerprint: str) -> Caller | None:
        try:
            with open(self._path(fingerprint), "rb") as file:
                document = json.loads(file.read(_MAX_FILE_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(document, Mapping) or not holds(_KIND, document, self._key.public):
            return None
        plain = {name: value for name, value in document.items() if name != "_signature"}
        try:
            read = RECORDS.read(plain, _CallerFile)
            key = PublicKey.from_pem(read.public_key)
        except (ConversionError, SigningError):
            return None
        if key.fingerprint != fingerprint:
            return None
        return Caller(
            key, read.label, read.scopes, read.not_after,
            read.max_runs, read.max_bytes, read.max_spend_microcents, read.trust,
        )  # fmt: skip
