"""The native half of `ryecore.lillux`.

Functions raise OSError (with errno and filename) where the system refuses, and ValueError for
values that make no sense; `ryecore.lillux` turns both into errors of `ryecore.errors`. A spec, an
identity or a tree is read attribute by attribute. A report, an identity or the stats of a template
come back as dictionaries of the fields of the `ryecore.lillux` class.
"""

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Literal, TypeAlias, TypedDict, final

from ryecore.lillux.processes import ProcessId, ProcessSpec
from ryecore.lillux.witness import TreeStat

__all__ = [
    "ContentStore",
    "JsonWriter",
    "Mailbox",
    "Pool",
    "SchemaValidator",
    "Signer",
    "SyncMailbox",
    "TextPattern",
    "Watcher",
    "Witness",
    "cancel",
    "current_process",
    "digest_tree",
    "exchange_files",
    "kill_processes",
    "list_tree",
    "monotonic_ns",
    "now_ns",
    "process_status",
    "read_digest",
    "read_files",
    "run_blocking",
    "sha256_file",
    "sha256_hex",
    "start_detached",
    "stat_beside",
    "stat_tree",
    "verify_signature",
]

_Path: TypeAlias = str | PathLike[str]

# clock

def now_ns() -> int: ...
def monotonic_ns() -> int: ...

# digests

def sha256_hex(*parts: bytes) -> str: ...
def sha256_file(path: _Path, /) -> str: ...
def read_digest(path: _Path, max_bytes: int, /) -> tuple[bytes, str]: ...
def read_files(paths: Iterable[_Path], max_bytes: int, /) -> list[tuple[bytes, str]]: ...
def list_tree(
    root: _Path,
    extensions: Sequence[str] | None,
    exclude_dirs: Sequence[str],
    recursive: bool,
    /,
) -> list[tuple[str, Literal["file", "symlink"]]]: ...
def exchange_files(one: _Path, other: _Path, /) -> bool: ...
def stat_tree(
    root: _Path,
    extensions: Sequence[str] | None,
    exclude_dirs: Sequence[str],
    recursive: bool,
    /,
) -> str: ...
def stat_beside(root: _Path, left_out: Sequence[str], /) -> str: ...
def digest_tree(
    root: _Path,
    extensions: Sequence[str] | None,
    exclude_dirs: Sequence[str],
    recursive: bool,
    /,
) -> tuple[str, list[tuple[str, str]]]: ...

# json_text

@final
class JsonWriter:
    def __new__(
        cls, *, ascii_only: bool, sort_keys: bool, spaced: bool, indented: bool
    ) -> JsonWriter: ...
    def write(self, value: object, /) -> str | None: ...

# witness

@final
class Witness:
    def __new__(
        cls,
        files: Sequence[tuple[_Path, str]],
        absent: Iterable[_Path],
        trees: Sequence[TreeStat],
        /,
    ) -> Witness: ...
    def holds(self) -> bool: ...
    def broken(self) -> str | None: ...

# warm starts

class _TemplateStats(TypedDict):
    state: Literal["starting", "ready", "failed", "refused"]
    pid: int
    spares: int
    forks: int
    memory_bytes: int
    failures: int
    reason: str

@final
class Pool:
    def __new__(cls, memory_bytes: int, /) -> Pool: ...
    def close(self) -> bool: ...
    def stats(self) -> list[_TemplateStats]: ...

# runs

class _Report(TypedDict):
    status: Literal["exited", "signaled", "timed_out", "cancelled", "unknown"]
    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    stdout_total_bytes: int
    stderr_total_bytes: int
    duration_ms: float
    pid: int
    left_behind: tuple[int, ...]
    warm: bool
    why_cold: str | None

@final
class Mailbox:
    def __new__(cls) -> Mailbox: ...
    @property
    def fd(self) -> int: ...
    def start(self, spec: ProcessSpec, /) -> int: ...
    def drain(self) -> list[tuple[int, _Report | OSError]]: ...

def cancel(token: int, /) -> None: ...
def run_blocking(spec: ProcessSpec, /) -> _Report: ...

# processes

class _ProcessId(TypedDict):
    boot_id: str
    pid_namespace: int
    pid: int
    start_ticks: int

def start_detached(spec: ProcessSpec, log_path: _Path, /) -> _ProcessId: ...
def kill_processes(
    processes: Sequence[ProcessId],
    spared: Sequence[ProcessId],
    marks: Sequence[bytes],
    grace_s: float,
    /,
) -> list[Literal["terminated", "killed", "already_dead"]]: ...
def process_status(process: ProcessId, /) -> Literal["running", "zombie", "dead"]: ...
def current_process() -> _ProcessId: ...

# schema

@final
class SchemaValidator:
    def __new__(cls, schema_json: str, check_formats: bool, /) -> SchemaValidator: ...
    def failures(
        self, instance_json: str, max_steps: int, max_ms: int, /
    ) -> list[tuple[str, str]] | None: ...

# signing

@final
class Signer:
    def __new__(cls, seed: bytes, /) -> Signer: ...
    def public(self) -> bytes: ...
    def sign(self, message: bytes, /) -> bytes: ...
    def sign_base64(self, message: bytes, /) -> str: ...

def verify_signature(public: bytes, signature: bytes, message: bytes, /) -> bool: ...

# text patterns

@final
class TextPattern:
    def __new__(cls, pattern: str, /) -> TextPattern: ...
    def is_match(self, text: str, max_steps: int, /) -> bool | None: ...

# store

@final
class ContentStore:
    def __new__(cls, root: _Path, durable: bool, /) -> ContentStore: ...
    def put(self, content: bytes, /) -> str: ...
    def get(self, digest: str, /) -> bytes: ...
    def has(self, digest: str, /) -> bool: ...
    def verify(self, digest: str, /) -> bool: ...

# syncs

@final
class SyncMailbox:
    def __new__(cls) -> SyncMailbox: ...
    @property
    def fd(self) -> int: ...
    def start(self, log: _Path, mark: _Path, /) -> int: ...
    def drain(self) -> list[tuple[int, bool | OSError]]: ...

# watch

@final
class Watcher:
    def __new__(cls, paths: Iterable[_Path], /) -> Watcher: ...
    @property
    def fd(self) -> int: ...
    def changes(self) -> list[str]: ...
    def wait(self, timeout_s: float | None, /) -> list[str]: ...
    def close(self) -> None: ...
