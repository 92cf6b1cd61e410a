"""Child processes: run to the end, started warm, detached, identified and killed.

One native thread starts and serves all children. Each leads a session of its own, and at the end of
its run the whole process group is killed. When the host is killed with SIGKILL, the kernel kills
each child with it, but not the processes that the child has started, and not a child that gained
privileges by its exec.

A warm start has a template of a program that forks a child ahead of each call. A call that finds
such a child is served by it, as if the program had just been started. Where there is a problem with
a template, the call starts cold; no call fails because of a template.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from errno import EINVAL, ENOENT, ENOEXEC
from functools import cache
from os import PathLike, register_at_fork
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from attrs import field

from ryecore import _native
from ryecore.errors import ProcessError, SpawnFailed
from ryecore.frozen import frozen
from ryecore.lillux.event_loop import is_without_loop
from ryecore.lillux.os_errors import failure_of
from ryecore.lillux.witness import Witness

if TYPE_CHECKING:
    import anyio

__all__ = [
    "ProcessId",
    "ProcessResult",
    "ProcessSpec",
    "RunningProcess",
    "TemplateStats",
    "WarmPool",
    "WarmStart",
    "current_process",
    "kill_process",
    "kill_processes",
    "process_status",
    "run_process",
    "run_process_sync",
    "spawn_detached",
]


@frozen
class TemplateStats:
    """The state of one template.

    Attributes:
        state: `failed` is tried again after a while, `refused` is not.
        pid: The number of its process; 0 where there is none.
        spares: How many children wait for a call.
        forks: How many children it has forked.
        memory_bytes: The memory of it and its spares, when last measured.
        failures: How many times in a row it has failed.
        reason: Why it failed the last time.
    """

    state: Literal["starting", "ready", "failed", "refused"]
    pid: int
    spares: int
    forks: int
    memory_bytes: int
    failures: int
    reason: str


class WarmPool:
    """The templates of one host, within one bound of memory.

    Args:
        memory_bytes: The bound of the templates and their spares; 0 starts everything cold.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._native = _native.Pool(memory_bytes)

    def __repr__(self) -> str:
        return f"WarmPool({', '.join(f'{one.pid} {one.state}' for one in self.stats())})"

    def close(self) -> bool:
        """End every template and spare, and wait until they are gone. Later calls start cold.

        Returns:
            Whether all of them ended within five seconds.
        """
        return self._native.close()

    def stats(self) -> tuple[TemplateStats, ...]:
        """Return the state of each template."""
        return tuple(TemplateStats(**stats) for stats in self._native.stats())


@frozen
class WarmStart:
    """A program's template. Its `repr` leaves out attributes that hold content.

    Attributes:
        pool: The pool of the template.
        arg_index: The index of the argument that differs in the template.
        arg: That argument, with a mark at the place where the template stops and forks.
        program: The code that the template runs at that place.
        settings: The settings of `program`.
        sealed: The files and folders that the template may read before it is ready. If one of them
            has changed by then, the template serves no call.
    """

    pool: WarmPool
    arg_index: int
    arg: str = field(repr=False)
    program: bytes = field(repr=False)
    settings: bytes = field(repr=False)
    sealed: Witness | None = field(default=None, repr=False)


_MAX_OUTPUT_BYTES: Final = 16 * 1024 * 1024


@frozen
class ProcessSpec:
    """A program to run, and the bounds of its run.

    Attributes:
        command: An absolute path, or a bare name that is looked up in the PATH of `env`.
        args: The arguments after the command.
        cwd: The working directory.
        env: The child's environment.
        call_env: Variables of this call alone, which override those of `env`; a template doesn't
            get them.
        stdin: The content of the child's standard input; empty for `/dev/null`.
        timeout_s: How long it may run; None for no bound.
        kill_grace_s: The time between TERM and KILL.
        drain_s: How long a pipe may stay open after the child's end, when another process holds it.
        max_output_bytes: How much of each stream is kept; the rest is counted.
        log_path: A file that both streams are appended to as they arrive, up to 256 MiB; created
            with mode 0600.
        warm: How a template that is ready serves it; None for a cold start, as with an empty
            `stdin`.
    """

    command: str
    args: tuple[str, ...] = ()
    cwd: str = field(kw_only=True)
    env: Mapping[str, str] = field(kw_only=True, repr=False)
    call_env: Mapping[str, str] = field(factory=dict, kw_only=True, repr=False)
    stdin: bytes = field(default=b"", kw_only=True, repr=False)
    timeout_s: float | None = field(default=300, kw_only=True)
    kill_grace_s: float = field(default=2.0, kw_only=True)
    drain_s: float = field(default=0.25, kw_only=True)
    max_output_bytes: int = field(default=_MAX_OUTPUT_BYTES, kw_only=True)
    log_path: str | PathLike[str] | None = field(default=None, kw_only=True)
    warm: WarmStart | None = field(default=None, kw_only=True, repr=False)


@frozen
class ProcessResult:
    """The result of a run.

    Attributes:
        status: How it ended; `unknown` where another thread reaped the child.
        exit_code: The exit code of a child that exited by itself, also after TERM.
        signal: The signal that ended the child.
        stdout: The first bytes of its standard output.
        stderr: The first bytes of its standard error.
        stdout_total_bytes: The bytes of standard output in all.
        stderr_total_bytes: The bytes of standard error in all.
        duration_ms: The time from the start to the reaping.
        pid: The number of the process.
        left_behind: Processes that left the child's group, and were seen at an untidy end
            (timeout, cancellation, a pipe held open). They were not ended.
        warm: Whether it ran in a child that a template had forked ahead.
        why_cold: Why it ran cold, where its spec was `warm`.
    """

    status: Literal["exited", "signaled", "timed_out", "cancelled", "unknown"]
    exit_code: int | None
    signal: int | None
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    stdout_total_bytes: int
    stderr_total_bytes: int
    duration_ms: float
    pid: int
    left_behind: tuple[int, ...]
    warm: bool = False
    why_cold: str | None = None


@frozen
class ProcessId:
    """The identity of a process, which no other process ever has.

    Attributes:
        boot_id: The id of the machine's boot.
        pid_namespace: The inode of its pid namespace.
        pid: Its number there.
        start_ticks: Clock ticks between the boot and its start, as its time namespace counts them.
        time_namespace: The inode of its time namespace; 0 where that isn't known.
    """

    boot_id: str
    pid_namespace: int
    pid: int
    start_ticks: int
    time_namespace: int = 0


async def run_process(spec: ProcessSpec) -> ProcessResult:
    """Run a program to its end. A cancelled call ends the process group and reaps it first.

    Args:
        spec: The program and its bounds.

    Returns:
        The result, with the output.

    Raises:
        SpawnFailed: The program can't be started.
    """
    if is_without_loop():
        return run_process_sync(spec)
    from ryecore.lillux.mailbox import current_mailbox  # noqa: PLC0415 - where a loop runs

    try:
        report = await current_mailbox().run(spec)
    except (OSError, ValueError) as error:
        _raise_spawn_failed(spec, error)
    return ProcessResult(**report)


def run_process_sync(spec: ProcessSpec) -> ProcessResult:
    """Run a program to its end in the calling thread, while other threads run.

    Args:
        spec: The program and its bounds.

    Returns:
        The result, with the output.

    Raises:
        SpawnFailed: The program can't be started.
        KeyboardInterrupt: The program was ended and reaped.
    """
    try:
        report = _native.run_blocking(spec)
    except (OSError, ValueError) as error:
        _raise_spawn_failed(spec, error)
    return ProcessResult(**report)


class RunningProcess:
    """A program that runs beside its host and ends with it. No task has to wait for it.

    Args:
        spec: The program and its bounds.

    Raises:
        SpawnFailed: The spec is invalid. `wait` raises it where the program can't be started.
    """

    def __init__(self, spec: ProcessSpec) -> None:
        self._spec = spec
        self._mailbox = _native.Mailbox()
        self._result: ProcessResult | OSError | None = None
        self._waiting: anyio.Lock | None = None
        try:
            self._token = self._mailbox.start(spec)
        except (OSError, ValueError) as error:
            _raise_spawn_failed(spec, error)

    def end(self) -> None:
        """End its process group: TERM, grace, KILL. `wait` waits for the end."""
        _native.cancel(self._token)

    def result(self) -> ProcessResult | None:
        """Return the result; None while it runs.

        Raises:
            SpawnFailed: The program can't be started.
        """
        if self._result is None:
            for _, outcome in self._mailbox.drain():
                if isinstance(outcome, OSError):
                    self._result = outcome
                else:
                    self._result = ProcessResult(**outcome)
        if isinstance(self._result, OSError):
            _raise_spawn_failed(self._spec, self._result)
        return self._result

    async def wait(self) -> ProcessResult:
        """Wait for its end; a cancelled wait leaves it running.

        Raises:
            SpawnFailed: The program can't be started.
        """
        import anyio  # noqa: PLC0415 - where a loop runs

        self._waiting = self._waiting or anyio.Lock()
        async with self._waiting:
            while True:
                result = self.result()
                if result is not None:
                    return result
                await anyio.wait_readable(self._mailbox.fd)


def spawn_detached(spec: ProcessSpec, log_path: str | PathLike[str]) -> ProcessId:
    """Start a program that outlives its host.

    Args:
        spec: The program; its bounds don't apply.
        log_path: The file that both output streams are appended to; created with mode 0600.

    Returns:
        Its identity, for `process_status` and `kill_process` in any process.

    Raises:
        SpawnFailed: It could not be started, or the log can't be written.
    """
    try:
        identity = _native.start_detached(spec, log_path)
    except (OSError, ValueError) as error:
        _raise_spawn_failed(spec, error)
    return ProcessId(**identity, time_namespace=current_process().time_namespace)


def kill_process(
    process: ProcessId,
    grace_s: float = 3.0,
) -> Literal["terminated", "killed", "already_dead"]:
    """End a process and all that it has started; see `kill_processes`.

    Args:
        process: The process. Another one that reuses its number is never signalled.
        grace_s: The time between TERM and KILL, in seconds.

    Returns:
        How it ended.

    Raises:
        ProcessError: It can't be ended, or not be identified from here.
    """
    return kill_processes((process,), grace_s)[0]


def kill_processes(
    processes: Sequence[ProcessId],
    grace_s: float = 3.0,
    *,
    spared: Iterable[ProcessId] = (),
    marks: Iterable[tuple[str, str]] = (),
) -> list[Literal["terminated", "killed", "already_dead"]]:
    """End processes, their groups where they lead one, and all that they have started.

    TERM goes to the processes and their groups. Once they have ended, or the grace is over, KILL
    goes to all their descendants, in whichever session, and to the sessions of those. Returns when
    all of them have ended.

    Args:
        processes: The processes. Another one that reuses the number of one is never signalled.
        grace_s: The time between TERM and KILL, in seconds.
        marks: Variables, each a name and a value. Every process that has begun with one of them in
            its environment is killed too, without TERM.

    Raises:
        ProcessError: One can't be ended or identified from here; the others were ended.
    """
    for process in processes:
        _check_time_namespace(process)
    try:
        return _native.kill_processes(
            processes,
            tuple(spared),
            [f"{name}={value}".encode() for name, value in marks],
            grace_s,
        )
    except (OSError, ValueError) as error:
        raise _process_error(processes, error) from error


def process_status(process: ProcessId) -> Literal["running", "zombie", "dead"]:
    """Return the status of a process.

    Args:
        process: The process.

    Returns:
        Its status; `dead` also where another process has its number, or the machine was restarted.

    Raises:
        ProcessError: It runs in another pid namespace, so that its status is unknown here.
    """
    _check_time_namespace(process)
    try:
        return _native.process_status(process)
    except (OSError, ValueError) as error:
        raise _process_error((process,), error) from error


def _check_time_namespace(process: ProcessId) -> None:
    """Refuse a process of another time namespace: its start time would identify another one."""
    here = current_process()
    if process.boot_id == here.boot_id and process.time_namespace not in (0, here.time_namespace):
        raise ProcessError(
            f"Process {process.pid}: it runs in another time namespace.", pid=process.pid
        )


def current_process() -> ProcessId:
    """Return the identity of the calling process."""
    return _own_identity()


@cache
def _own_identity() -> ProcessId:
    return ProcessId(**_native.current_process(), time_namespace=_time_namespace())


def _time_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/time").st_ino
    except OSError:
        return 0  # a kernel without time namespaces


register_at_fork(after_in_child=_own_identity.cache_clear)


def _raise_spawn_failed(spec: ProcessSpec, error: OSError | ValueError | OverflowError) -> NoReturn:
    if isinstance(error, OSError):
        message = f"{spec.command} can't be started: {error.strerror} ({error.filename})."
        errno = error.errno
    else:
        message = f"{spec.command} can't be started: {error}."
        errno = EINVAL
    raise SpawnFailed(
        message, next_step=_next_step(spec, errno), command=spec.command, errno=errno
    ) from error


def _next_step(spec: ProcessSpec, errno: int | None) -> str:
    if errno == ENOENT and not Path(spec.cwd).is_dir():
        return "Create the working directory, or name another one."
    if errno == ENOENT and Path(spec.command).is_file():
        return "The interpreter that its first line names is missing."
    if errno == ENOENT and "/" not in spec.command:
        return f"Install it, or add its folder to the child's PATH ({spec.env.get('PATH', '')!r})."
    if errno == ENOEXEC:
        return "It is neither a binary for this machine nor a script that begins with #!."
    failure = failure_of(errno)
    return failure.next_step if failure.used_up else ""


def _process_error(processes: Sequence[ProcessId], error: OSError | ValueError) -> ProcessError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    numbers = ", ".join(str(process.pid) for process in processes) or "of a mark"
    return ProcessError(f"Process {numbers}: {reason}.", pid=processes[0].pid if processes else 0)
