"""A run in the process that Ray has started for it on a worker, in a Rye that is opened here.

The process that asked for it polls its events, the output of its tool, and its result. All of them
are JSON.

Source: docs/design/ray.md.
"""

import asyncio
import json
import os
import socket
import tempfile
import threading
import time
import traceback
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import anyio
import anyio.to_thread
from attrs import evolve

from ryecore.actions.settings import OBJECTS, STATE, Settings
from ryecore.actions.targets.ray_calls import RayPayload, RayThread
from ryecore.errors import InputError, RyeError, StateUnreachable
from ryecore.host_factory import ENVIRONMENT_FACTORY
from ryecore.items.paths import user_space_in
from ryecore.items.spaces import discover_bundles
from ryecore.node.work_projects import WorkerProjects, end_failed
from ryecore.policy import CancelToken
from ryecore.remote.protocol.error_documents import map_errors, write_error
from ryecore.remote.travelled import TRAVELLED, take_project
from ryecore.runs.portable import write_json
from ryecore.rye import Rye
from ryecore.state.object_places import is_on_postgres
from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.run_queue import RunQueue
from ryecore.worker import environ_without, open_rye

__all__ = ["KeptEvents", "RayRun", "begin_thread"]

_MAX_EVENTS: Final = 100_000
"""The most events that wait for the caller's poll; more are counted, and left out."""

_MAX_LOG_BYTES: Final = 1024 * 1024
_LOG_EVERY_S: Final = 0.2
_RETRY_S: Final = 1.0


class KeptEvents:
    """The events of a run that its caller hasn't taken yet.

    Any thread may add one: a chain is made ready in another thread than the loop's.

    Args:
        most: How many are kept. One event tells how many were left out behind them.
    """

    def __init__(self, most: int = _MAX_EVENTS) -> None:
        self._most = most
        self._kept: list[Mapping[str, object]] = []
        self._taken = 0
        self._left_out = 0
        self._lock = threading.Lock()

    def add(self, event: Mapping[str, object]) -> None:
        """Keep an event. Of one that JSON can't hold, its step and the reason are kept."""
        plain = _plain_event(event)
        with self._lock:
            if len(self._kept) < self._most:
                self._kept.append(plain)
            else:
                self._left_out += 1

    def after(self, taken: int, *, ended: bool = False) -> list[Mapping[str, object]]:
        """Return the events behind the first `taken` ones, which the caller has.

        Args:
            taken: How many it has.
            ended: Whether there will be no more.
        """
        with self._lock:
            del self._kept[: taken - self._taken]
            self._taken = taken
            if self._left_out and (ended or len(self._kept) < self._most):
                self._kept.append({"step": "events_left_out", "left_out": self._left_out})
                self._left_out = 0
            return list(self._kept)


def _plain_event(event: Mapping[str, object]) -> Mapping[str, object]:
    try:
        write_json(event)
    except InputError as refused:
        return {"step": str(event.get("step")), "error": refused.message}
    return event


class RayRun:
    """The one run of this process."""

    def __init__(self) -> None:
        self._events = KeptEvents()
        self._result: Mapping[str, object] | None = None
        self._changed = asyncio.Event()
        self._stop = CancelToken()
        self._deadline: float | None = None
        self._log: BinaryIO | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, payload: bytes) -> None:
        """Begin the run, unless that was asked for already."""
        if self._task is None:
            sent = RayPayload.from_bytes(payload)
            if sent.left_s is not None:
                self._deadline = time.monotonic() + sent.left_s
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.create_task(self._run(sent))

    def stop(self) -> None:
        """Ask the run to stop; its result says that it was."""
        self._stop.cancel()

    async def poll(self, after: int, log_after: int, wait_s: float) -> bytes:
        """Return what has happened since, as soon as something has, or after `wait_s` seconds.

        Args:
            after: How many events the caller has.
            log_after: How many bytes of the output it has.
            wait_s: The longest wait, in seconds.

        Returns:
            `events`, `log` in base64, and `result`, which is null until the run has ended.
        """
        until = time.monotonic() + wait_s
        while True:
            self._changed.clear()
            result = self._result  # read first: what follows has all events before it
            events = self._events.after(after, ended=result is not None)
            log = self._read_log(log_after)
            left_s = until - time.monotonic()
            if result is not None or events or log or left_s <= 0:
                break
            try:
                within_s = left_s if self._log is None else min(left_s, _LOG_EVERY_S)
                await asyncio.wait_for(self._changed.wait(), within_s)
            except TimeoutError:
                continue
        found = {"events": events, "log": b64encode(log).decode(), "result": result}
        return json.dumps(found, allow_nan=False).encode()

    def _read_log(self, after: int) -> bytes:
        if self._log is None:
            return b""
        return os.pread(self._log.fileno(), _MAX_LOG_BYTES, after)

    def _sink(self, event: Mapping[str, object]) -> None:
        self._events.add(event)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._changed.set)

    async def _run(self, sent: RayPayload) -> None:
        try:
            with ExitStack() as opened:
                path = self._open_log(opened) if sent.wants_log else None
                result = await self._execute(sent, path)
                write_json(result)  # which refuses what JSON can't hold
                self._result = result
        except RyeError as error:
            self._result = write_error(error.during(sent.payload.item_id))
        except Exception as error:
            # Its text may hold a secret, and the result may be kept where others read it.
            self._result = write_error(RyeError(f"ryecore itself failed: {type(error).__name__}."))
        self._changed.set()

    def _open_log(self, opened: ExitStack) -> Path:
        """Make the file of the tool's output; what it holds can be read until this process ends."""
        folder = tempfile.TemporaryDirectory(prefix="rye-ray-", ignore_cleanup_errors=True)
        path = Path(opened.enter_context(folder)) / "log"
        path.touch(0o600)
        self._log = path.open("rb")
        return path

    async def _execute(self, sent: RayPayload, log: Path | None) -> Mapping[str, object]:
        """Execute the tool in the project, here or as it travelled, and return its result."""
        payload = sent.payload
        if sent.snapshot is None:
            settings = _as_here(payload.settings)
            async with _open(settings) as rye:
                return await self._execute_in(rye, sent, log)
        settings = _as_own(payload.settings)
        async with _open_without_project(settings) as own:
            objects = await anyio.to_thread.run_sync(own.cluster.travelling)
            taken = partial(take_project, objects, sent.snapshot, _folder(settings))
            held = await anyio.to_thread.run_sync(taken)
        with held:
            settings = evolve(settings, project_path=str(held.path))
            async with _open(settings) as rye:
                try:
                    found = await self._execute_in(rye, sent, log)
                except RyeError as error:
                    found = write_error(error.during(payload.item_id))
        return _at_home(found, str(held.path), payload.settings.project_path)

    async def _execute_in(
        self, rye: Rye, sent: RayPayload, log: Path | None
    ) -> Mapping[str, object]:
        request = sent.payload.request
        done = await rye.execute(
            request.ref,
            request.inputs,
            timeout_s=request.timeout_s,
            limits=request.limits if request.limits.to_dict() else None,
            output_log=log,
            ctx=evolve(
                sent.payload.ctx,
                cancellation=self._stop,
                deadline=self._deadline,
                event_sink=self._sink if sent.wants_events else None,
            ),
        )
        return {**done.to_dict(), "effect_unknown": done.effect_unknown}


def begin_thread(payload: bytes, ended: Callable[[], None]) -> None:
    """Bring a thread's run to its end, in a thread of this process: begin it, or resume it.

    Args:
        payload: A `RayThread`.
        ended: Called after the run's end, or where nothing here can bring it about.
    """
    sent = RayThread.from_bytes(payload)

    def carry_out() -> None:
        try:
            anyio.run(_carry_out, sent)
        except Exception:
            traceback.print_exc()  # into Ray's log of this process
        finally:
            ended()

    threading.Thread(target=carry_out, name="ryecore").start()


async def _carry_out(sent: RayThread) -> None:
    """Bring a run to its end, or end it with what keeps this process from opening its Rye."""
    settings = _as_own(sent.settings) if sent.travels else _as_here(sent.settings)
    opened = _open_without_project(settings) if sent.travels else _open(settings)
    try:
        async with opened as rye:
            await _carry_out_in(rye, settings, sent.run_id)
    except Exception as problem:  # such as a folder or a factory that is missing here
        bare = evolve(_as_own(sent.settings), deps_factory=None)
        async with _open_without_project(bare) as rye:
            while True:
                if await end_failed(rye.cluster, sent.run_id, problem):
                    return
                await anyio.sleep(_RETRY_S)


async def _carry_out_in(own: Rye, settings: Settings, run_id: str) -> None:
    """Bring a run to its end in its project: the worker's, or the one that travelled with it."""

    def open_there(project: Path) -> Rye:
        return open_rye(evolve(settings, project_path=str(project)), environ_without())

    queues = await _queues(own)
    async with anyio.create_task_group() as tasks:
        projects = WorkerProjects(
            own, open_there, _folder(settings), queues, own.cluster.travelling, tasks
        )
        await projects.carry_out(run_id)
        tasks.cancel_scope.cancel()


async def _queues(rye: Rye) -> RunQueue:
    """Return the queues of the state, once it can be reached."""
    while True:
        try:
            return await rye.cluster.queue()
        except StateUnreachable:
            await anyio.sleep(_RETRY_S)


@asynccontextmanager
async def _open(settings: Settings) -> AsyncIterator[Rye]:
    """Open a project here. What keeps this process from it names its machine, among many."""
    async with AsyncExitStack() as opened:
        try:
            rye = await opened.enter_async_context(open_rye(settings, environ_without()))
        except RyeError as error:
            where = f"The worker on {socket.gethostname()} can't open the project"
            error.message = f"{where}: {error.message}"
            raise
        yield rye


def _as_here(settings: Settings) -> Settings:
    """Return settings with what only this machine has: its passwords, and its models."""
    return evolve(
        settings,
        state=_own_address(settings.state, STATE),
        objects=_own_address(settings.objects, OBJECTS, STATE),
        deps_factory=settings.deps_factory or ENVIRONMENT_FACTORY,
    )


def _own_address(address: str | None, *variables: str) -> str | None:
    """Return the address of the same place that a variable of this process has, if one does."""
    place = _place(address)
    own = (os.environ.get(name) for name in variables)
    return next((one for one in own if place and _place(one) == place), address)


def _as_own(settings: Settings) -> Settings:
    """Return settings for a project that travels: user space and bundles are this machine's."""
    user = user_space_in(os.environ)
    return evolve(
        _as_here(settings),
        user_space=str(user),
        cache_dir=str(user / ".ai/cache/sealed"),
        system_spaces=discover_bundles(),
    )


@asynccontextmanager
async def _open_without_project(settings: Settings) -> AsyncIterator[Rye]:
    """Open a Rye in an empty project, for what the state has."""
    with tempfile.TemporaryDirectory(prefix="rye-ray-", ignore_cleanup_errors=True) as folder:
        async with _open(evolve(settings, project_path=folder)) as rye:
            yield rye


def _folder(settings: Settings) -> Path:
    """Return where projects that travel become folders."""
    return settings.user_root / TRAVELLED


def _at_home(found: Mapping[str, Any], project: str, at_home: str) -> Mapping[str, object]:
    """Return a result whose errors and chain name the caller's own files."""

    def renamed(text: str) -> str:
        return text.replace(project, at_home)

    found = map_errors(found, renamed)
    elements = found.get("chain_elements")
    if not isinstance(elements, list):
        return found
    named = [{**one, "path": one.get("path") and renamed(str(one["path"]))} for one in elements]
    return {**found, "chain_elements": named}


def _place(address: str | None) -> object:
    """Return what is the same of all addresses of one schema; None where it is of another kind."""
    if not address or not is_on_postgres(address):
        return None
    return PostgresAddress.parse(address).place
