"""Runs on Ray clusters: each in a process that Ray starts on a worker, which opens the project.

A tool is verified there, like a local one, and its result comes back through Ray. A thread is a run
of a shared state: its worker takes it from there, and its result is there. A resource that the
cluster lacks is refused before anything is sent.

Source: docs/design/ray.md.
"""

import json
import math
import os
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import anyio
from anyio import to_thread
from attrs import evolve

from ryecore.actions.payload import Payload, read_settings, write_settings
from ryecore.actions.settings import Settings
from ryecore.chain.model import ExecutionResult
from ryecore.errors import CallCancelled, InputError, MissingExtra, RemoteError, RyeError
from ryecore.frozen import frozen
from ryecore.policy import CallContext
from ryecore.policy.cancelling import cancelled_by, is_cancelled
from ryecore.policy.context import place_id
from ryecore.policy.reports import report_of
from ryecore.remote.ports import ClusterSender
from ryecore.remote.ray_rules import NEVER_BEGAN, Lacked, look_interval_s
from ryecore.remote.results import result_of
from ryecore.runs.request import RunRequest
from ryecore.state.postgres.address import PostgresAddress

if TYPE_CHECKING:
    from ryecore.remote.config import Remote
    from ryecore.remote.plan import PushPlanner
    from ryecore.remote.ray_cluster import RayActor, RayCluster
    from ryecore.state.object_store import ObjectStore

__all__ = ["RayCalls", "RayPayload", "RayThread", "look_at_cluster"]

T = TypeVar("T")

_VERSION: Final = 1
"""The version of what is sent to the processes of Ray's, of both forms."""

_POLL_S: Final = 10.0
_LOG_POLL_S: Final = 1.0
_MAX_STARTS: Final = 3
"""How often a process is started for a tool where each died before the tool could begin."""

_STOPPED_WITHIN_S: Final = 10.0
_HOMEWARD_S: Final = 5.0
"""How long after its deadline a run's result may still come home, in seconds."""


@frozen
class RayPayload:
    """A run for a process of Ray's.

    Attributes:
        payload: The run and its caller.
        left_s: The seconds that the caller has left; None without a deadline. Machines have
            monotonic clocks of their own.
        wants_events: Whether the caller takes events.
        wants_log: Whether the caller takes the tool's output as it comes.
        snapshot: The snapshot in which the project travels; None where the worker has its folder.
    """

    payload: Payload
    left_s: float | None = None
    wants_events: bool = False
    wants_log: bool = False
    snapshot: str | None = None

    def to_bytes(self) -> bytes:
        """Return it as one JSON document without passwords, as Ray keeps it where others read."""
        payload = evolve(self.payload, settings=self.payload.settings.without_passwords)
        document = {
            "version": _VERSION,
            "payload": json.loads(payload.to_bytes()),
            "left_s": self.left_s,
            "wants_events": self.wants_events,
            "wants_log": self.wants_log,
            "snapshot": self.snapshot,
        }
        return json.dumps(document).encode()

    @classmethod
    def from_bytes(cls, document: bytes) -> Self:
        """Read what `to_bytes` wrote."""
        values = _read(document)
        return cls(Payload.from_bytes(json.dumps(values.pop("payload")).encode()), **values)


@frozen
class RayThread:
    """The run of a thread for a process of Ray's; the rest of it is in the shared state.

    Attributes:
        settings: The settings with which to open the Rye.
        run_id: The run.
        travels: Whether its project travels, so that the worker's own user space counts.
    """

    settings: Settings
    run_id: str
    travels: bool = False

    def to_bytes(self) -> bytes:
        """Return it as one JSON document without passwords, as Ray keeps it where others read."""
        document = {
            "version": _VERSION,
            "settings": write_settings(self.settings.without_passwords),
            "run_id": self.run_id,
            "travels": self.travels,
        }
        return json.dumps(document).encode()

    @classmethod
    def from_bytes(cls, document: bytes) -> Self:
        """Read what `to_bytes` wrote."""
        values = _read(document)
        return cls(read_settings(values["settings"]), values["run_id"], values["travels"])


def _read(document: bytes) -> dict[str, Any]:
    """Read a document of this version, without its version.

    Raises:
        InputError: It has another one.
    """
    values: dict[str, Any] = json.loads(document)
    version = values.pop("version", None)
    if version != _VERSION:
        raise InputError(
            f"What came through Ray has the version {version}, and this worker reads {_VERSION}.",
            next_step="Install the same version of ryecore for callers and workers.",
        )
    return values


class _Sender:
    """What gives threads' runs to the workers of a cluster."""

    def __init__(self, cluster: "RayCluster", settings: Settings, *, travels: bool) -> None:
        self._cluster = cluster
        self._settings = settings
        self._travels = travels

    def enqueue(self, run_id: str, queue: str, priority: int) -> None:
        self._cluster.start_runner(self._name(run_id), self._payload(run_id))

    def refuse_lacking(self) -> None:
        self._cluster.refuse_lacking()

    def lacking(self, run_ids: Iterable[str]) -> Mapping[str, RyeError]:
        known, nodes = self._cluster.runners(), self._cluster.nodes()
        found: dict[str, RyeError] = {}
        for run_id in run_ids:
            resources = known.get(self._name(run_id))
            if resources is None:  # it isn't here, so that this cluster says nothing of it
                continue
            refusal = self._cluster.refusal_of(resources, nodes)
            if refusal is not None:
                found[run_id] = refusal
        return found

    def forget(self, run_id: str) -> None:
        name = self._name(run_id)
        resources = self._cluster.runners().get(name)
        if resources is not None:
            self._cluster.end_runner(name, resources)

    def send_again(self, run_ids: Iterable[str]) -> None:
        known = self._cluster.runners()
        for run_id in run_ids:
            name = self._name(run_id)
            if name not in known:
                self._cluster.start_runner(name, self._payload(run_id), wait_s=0)

    def _name(self, run_id: str) -> str:
        """Return the id of a run for its actor, which no other state's has."""
        state = PostgresAddress.parse(self._settings.state or "").place
        return place_id(*map(str, state), run_id)

    def _payload(self, run_id: str) -> bytes:
        return RayThread(self._settings, run_id, self._travels).to_bytes()

    def close(self) -> None:
        pass


class RayCalls:
    """The calls of one open Rye on Ray clusters.

    Args:
        settings: The settings with which a worker opens the Rye.
        objects: Returns the objects by which projects travel.
        pushes: Returns what plans what of the project travels.
    """

    def __init__(
        self,
        settings: Settings,
        objects: "Callable[[], ObjectStore]",
        pushes: "Callable[[], PushPlanner]",
    ) -> None:
        self._objects = objects
        self._pushes = pushes
        self._settings = settings

    def sender(self, remote: "Remote") -> ClusterSender:
        """Return what gives threads' runs to the workers of a cluster. It blocks.

        Raises:
            RemoteUnavailable: The cluster can't be reached.
        """
        return _Sender(_connect(remote), self._settings, travels=remote.settings.travels)

    async def call(
        self,
        remote: "Remote",
        request: RunRequest,
        ctx: CallContext,
        *,
        trace: bool = False,
        output_log: str | None = None,
    ) -> ExecutionResult:
        """Run a tool on a cluster, and wait for its result.

        Args:
            remote: The cluster.
            request: The tool and its parameters.
            ctx: The caller.
            trace: Whether the result has the events.
            output_log: A file that the tool's output is also written to.

        Raises:
            RemoteUnavailable: The cluster can't be reached.
            RemoteError: It lacks a resource, or the worker died, so that the effect is unknown.
            RyeError: The tool didn't run; the error is the same as locally.
        """
        snapshot = await self._put_project(remote) if remote.settings.travels else None
        call = _Call(
            self._settings, remote, request, ctx, snapshot, trace=trace, output_log=output_log
        )
        if ctx.cancellation is None:
            return await call.run()
        with cancelled_by(ctx.cancellation):
            return await call.run()
        raise CallCancelled(f"{request.ref} was cancelled by its caller.")

    async def _put_project(self, remote: "Remote") -> str:
        """Store what travels of the project, and return its snapshot."""
        from ryecore.remote.plan import make_plan  # noqa: PLC0415 - for projects that travel
        from ryecore.remote.travelling import put_project  # noqa: PLC0415

        plan = await make_plan(self._pushes(), remote.settings.push.include)
        objects = await to_thread.run_sync(self._objects)
        return await to_thread.run_sync(put_project, plan, objects)


class _Call:
    def __init__(
        self,
        settings: Settings,
        remote: "Remote",
        request: RunRequest,
        ctx: CallContext,
        snapshot: str | None,
        *,
        trace: bool,
        output_log: str | None,
    ) -> None:
        self._settings = settings
        self._snapshot = snapshot
        self._remote = remote
        self._request = request
        self._ctx = ctx
        self._wants_events = trace or ctx.event_sink is not None or ctx.report_sink is not None
        self._trace: list[Mapping[str, object]] | None = [] if trace else None
        self._seen = 0
        self._output_log = output_log
        self._log_bytes = 0
        self._began_s = time.monotonic()
        self._limiter = anyio.CapacityLimiter(math.inf)  # others wait for processes and files

    async def run(self) -> ExecutionResult:
        cluster = await self._in_thread(partial(_connect, self._remote))
        await self._in_thread(cluster.refuse_lacking)
        for left in reversed(range(_MAX_STARTS)):
            actor = await self._in_thread(cluster.start_actor)
            try:
                return await self._follow(cluster, actor)
            except anyio.get_cancelled_exc_class():
                await self._stop(actor)
                raise
            except RemoteError as lost:  # such as a node that died as it was to begin there
                if lost.problem != NEVER_BEGAN or not left:
                    raise
            finally:
                with anyio.CancelScope(shield=True):
                    await self._in_thread(actor.end)
        raise AssertionError("the last start returns or raises")

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._limiter)

    async def _follow(self, cluster: "RayCluster", actor: "RayActor") -> ExecutionResult:
        """Wait for room, begin the run there, and wait for its result."""
        patience_s, lacked = self._remote.settings.patience_s, Lacked()
        every_s = look_interval_s(patience_s)
        with anyio.move_on_after(self._left_s()) as waiting:
            while not await self._in_thread(partial(actor.is_ready, every_s)):
                refusal = await self._in_thread(cluster.refusal)
                lacks = {self._request.ref.id} if refusal is not None else ()
                if lacked.longer_than(patience_s, lacks, time.monotonic()) and refusal:
                    raise refusal
        if waiting.cancelled_caught:
            raise RemoteError(
                f"The Ray cluster {self._remote.name} had no room within the time that the caller "
                f"of {self._request.ref} has. Nothing ran.",
                next_step="See what takes its resources, and give it more time: ray status",
                remote=self._remote.name,
                problem="busy",
            )
        await self._ctx.begins()
        await self._in_thread(partial(actor.begin, self._payload().to_bytes()))
        left_s = self._left_s()
        with anyio.move_on_after(None if left_s is None else left_s + _HOMEWARD_S):
            return await self._result(actor)
        await self._stop(actor)
        raise RemoteError(
            f"The Ray cluster {self._remote.name} sent no result of {self._request.ref} in the "
            "time that its caller has; whether it had its effect is unknown.",
            next_step="Look at its effect before you execute it again.",
            remote=self._remote.name,
            problem="late",
        )

    def _payload(self) -> RayPayload:
        ctx = evolve(self._ctx, deadline=None)
        return RayPayload(
            Payload(self._settings, "", evolve(self._request, target="local"), ctx),
            self._left_s(),
            self._wants_events,
            self._output_log is not None,
            self._snapshot,
        )

    def _left_s(self) -> float | None:
        deadline = self._ctx.deadline
        return None if deadline is None else max(deadline - time.monotonic(), 0.0)

    async def _result(self, actor: "RayActor") -> ExecutionResult:
        """Poll until the run has ended, and pass on what it sends."""
        wait_s = _POLL_S if self._output_log is None else _LOG_POLL_S
        while True:
            asked = partial(actor.poll, self._seen, self._log_bytes, wait_s)
            found = await self._in_thread(asked)
            self._pass_on(found["events"])
            log = b64decode(found["log"])
            if log:
                await anyio.to_thread.run_sync(self._append_log, log)
            elif found["result"] is not None:
                return self._read(found["result"])

    def _pass_on(self, events: list[Mapping[str, object]]) -> None:
        self._seen += len(events)
        if self._trace is not None:
            self._trace.extend(events)
        for event in events:
            if self._ctx.event_sink is not None:
                self._ctx.event_sink(event)
            report = report_of(f"tool_{event.get('step')}", event, self._ctx.call_id)
            if report is not None and self._ctx.report_sink is not None:
                self._ctx.report_sink(report)

    def _append_log(self, content: bytes) -> None:
        self._log_bytes += len(content)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with open(os.open(self._output_log or "", flags, 0o600), "ab") as file:
            file.write(content)

    def _read(self, found: Mapping[str, Any]) -> ExecutionResult:
        remote, item_id = self._remote.name, str(self._request.ref)
        duration_ms = (time.monotonic() - self._began_s) * 1000
        try:
            done = result_of(found, remote, item_id, {}, duration_ms)
        except CallCancelled:
            if is_cancelled(self._ctx.cancellation):
                raise CallCancelled(f"{item_id} was cancelled by its caller.") from None
            raise
        except RyeError as error:
            error.during(item_id, trace=self._trace or ())
            raise
        return evolve(done, trace=None if self._trace is None else tuple(self._trace))

    async def _stop(self, actor: "RayActor") -> None:
        """Ask the run to stop, and wait for its end for a bounded time."""
        with anyio.move_on_after(_STOPPED_WITHIN_S, shield=True):
            try:
                await self._in_thread(actor.stop)
                await self._result(actor)
            except RyeError:
                return  # it has stopped, or what is left of it is ended by its process's end


async def look_at_cluster(remote: "Remote") -> tuple[Mapping[str, float], ...]:
    """Return the resources of each living node of a cluster that has what a run takes.

    Raises:
        RemoteUnavailable: The cluster can't be reached.
        RemoteError: It lacks a resource.
    """

    def look() -> tuple[Mapping[str, float], ...]:
        cluster = _connect(remote)
        cluster.refuse_lacking()
        return cluster.nodes()

    return await to_thread.run_sync(look)


def _connect(remote: "Remote") -> "RayCluster":
    try:
        from ryecore.remote.ray_cluster import RayCluster  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("ray", "grpc"):
            raise
        raise MissingExtra(
            f"A Ray cluster needs the package {problem.name}, which is not installed.",
            next_step="pip install 'ryecore[ray]'",
            extra="ray",
        ) from None
    return RayCluster(remote)
