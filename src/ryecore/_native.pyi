"""The native half of `ryecore.lillux`.

Everything raises OSError (with errno and filename) for what the system refuses, and ValueError for
values that make no sense; `ryecore.lillux` turns both into errors of `ryecore.errors`.
"""

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Literal, TypeAlias, final

__all__ = [
    "ContentStore",
    "Mailbox",
    "Pool",
    "SchemaValidator",
    "TextPattern",
    "Watcher",
    "Witness",
    "cancel",
    "current_process",
    "digest_tree",
    "kill_processes",
    "list_tree",
    "monotonic_ns",
    "now_ns",
    "process_status",
    "read_digest",
    "read_files",
    "run_blocking",
    "sha256_file",
    "start_detached",
    "stat_tree",
]

_Path: TypeAlias = str | PathLike[str]

# clock

def now_ns() -> int: ...
def monotonic_ns() -> int: ...

# digests

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
def stat_tree(
    root: _Path,
    extensions: Sequence[str] | None,
    exclude_dirs: Sequence[str],
    recursive: bool,
    /,
) -> str: ...
def digest_tree(
    root: _Path,
    extensions: Sequence[str] | None,
    exclude_dirs: Sequence[str],
    recursive: bool,
    /,
) -> tuple[str, list[tuple[str, str]]]: ...

# witness

@final
class Witness:
    def __new__(
        cls,
        files: Sequence[tuple[_Path, str]],
        absent: Iterable[_Path],
        trees: Sequence[tuple[_Path, Sequence[str] | None, Sequence[str], bool, str]],
        /,
    ) -> Witness: ...
    def holds(self) -> bool: ...
    def broken(self) -> str | None: ...

# warm starts: state, pid, spares, forks, memory_bytes, failures, reason

_Standing: TypeAlias = tuple[
    Literal["starting", "ready", "failed", "refused"], int, int, int, int, int, str
]

@final
class Pool:
    def __new__(cls, memory_bytes: int, /) -> Pool: ...
    def close(self) -> bool: ...
    def stats(self) -> list[_Standing]: ...

# runs: command, args, cwd, env, call_env, stdin, timeout_s, kill_grace_s, drain_s,
# max_output_bytes, log, warm (pool, index of the argument, that argument in the template,
# program, settings, sealed)

_Spec: TypeAlias = tuple[
    str,
    Sequence[str],
    str,
    dict[str, str],
    dict[str, str],
    bytes,
    float | None,
    float,
    float,
    int,
    _Path | None,
    tuple[Pool, int, str, bytes, bytes, Witness | None] | None,
]
# status, exit_code, signal, stdout, stderr, stdout_total_bytes, stderr_total_bytes, duration_ms,
# pid, left_behind, warm, why_cold
_Report: TypeAlias = tuple[
    Literal["exited", "signaled", "timed_out", "cancelled", "unknown"],
    int | None,
    int | None,
    bytes,
    bytes,
    int,
    int,
    float,
    int,
    tuple[int, ...],
    bool,
    str | None,
]

@final
class Mailbox:
    def __new__(cls) -> Mailbox: ...
    @property
    def fd(self) -> int: ...
    def start(self, spec: _Spec, /) -> int: ...
    def drain(self) -> list[tuple[int, _Report | OSError]]: ...

def cancel(token: int, /) -> None: ...
def run_blocking(spec: _Spec, /) -> _Report: ...

# processes: boot_id, pid_namespace, pid, start_ticks

_ProcessId: TypeAlias = tuple[str, int, int, int]

def start_detached(
    command: str,
    args: Sequence[str],
    cwd: str,
    env: dict[str, str],
    stdin: bytes,
    log_path: _Path,
    /,
) -> _ProcessId: ...
def kill_processes(
    processes: Sequence[_ProcessId],
    spared: Sequence[_ProcessId],
    marks: Sequence[bytes],
    grace_s: float,
    /,
) -> list[Literal["terminated", "killed", "already_dead"]]: ...
def process_status(process: _ProcessId, /) -> Literal["running", "zombie", "dead"]: ...
def current_process() -> _ProcessId: ...

# schema

@final
class SchemaValidator:
    def __new__(cls, schema_json: str, /) -> SchemaValidator: ...
    def failures(
        self, instance_json: str, max_steps: int, max_ms: int, /
    ) -> list[tuple[str, str]] | None: ...

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

# watch

@final
class Watcher:
    def __new__(cls, paths: Iterable[_Path], /) -> Watcher: ...
    @property
    def fd(self) -> int: ...
    def changes(self) -> list[str]: ...
    def wait(self, timeout_s: float | None, /) -> list[str]: ...
    def close(self) -> None: ...
