"""The connection to a Ray cluster, and the actors on it: one process on a worker for each run.

What passes through Ray are bytes, JSON in all cases: its pickles hold no more than them. Imported
only where a remote names a cluster, because the package `ray` is an extra.

Source: docs/design/ray.md.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final

import ray  # pyright: ignore[reportMissingImports]
from ray.exceptions import (  # pyright: ignore[reportMissingImports]
    GetTimeoutError,
    RayActorError,
    RayError,
)

from ryecore.errors import RemoteError, RemoteUnavailable
from ryecore.remote.config import Remote
from ryecore.remote.ray_rules import (
    AUTO,
    NEVER_BEGAN,
    Resources,
    lacking,
    ray_options,
    read_runner_name,
    runner_name,
    with_default,
)

__all__ = ["RayActor", "RayCluster"]

_REMOTE: Final[Any] = ray.remote
NAMESPACE: Final = "ryecore"
_WORKER: Final = "ryecore.ray_worker"
_ANSWER_S: Final = 60.0
_BROKEN_WITHIN_S: Final = 2.0
"""How long a sender waits for a worker to say that it can't run anything, in seconds."""

_connecting: Final = threading.Lock()
_connected: Final[set[str]] = set()
"""The address that this process was connected to: Ray has one connection for each process."""


class _Actor:
    """The process of a run, as Ray starts it on a worker: it passes bytes on."""

    def __init__(self) -> None:
        self._run = import_module(_WORKER).RayRun()

    async def ready(self) -> None:
        """Return as soon as the process runs."""

    async def begin(self, payload: bytes) -> None:
        """Begin the run."""
        self._run.begin(payload)

    async def poll(self, after: int, log_after: int, wait_s: float) -> bytes:
        """Return what has happened since; see `ray_worker.py`."""
        found: bytes = await self._run.poll(after, log_after, wait_s)
        return found

    async def stop(self) -> None:
        """Ask the run to stop."""
        self._run.stop()


class _Runner:
    """The process of a run of a shared state. Ray starts it again on another worker."""

    def __init__(self, payload: bytes) -> None:
        import_module(_WORKER).begin_thread(payload, _end_own_process)

    def ready(self) -> None:
        """Return as soon as the process runs."""


def _end_own_process() -> None:
    """End the process of a run that has ended, for good."""
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


class RayCluster:
    """The cluster of a remote, as this process is connected to it. Its methods block."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._resources = remote.settings.resources
        address = remote.settings.ray or AUTO
        with _connecting, self._failures("can't be reached"):
            _connect(address, remote.name)

    @property
    def name(self) -> str:
        """The name of its remote."""
        return self._remote.name

    def nodes(self) -> tuple[Mapping[str, float], ...]:
        """Return what each living node has in all, in use or not."""
        with self._failures("can't be reached"):
            list_nodes: Callable[[], list[Mapping[str, Any]]] = ray.nodes
            return tuple(one["Resources"] for one in list_nodes() if one["Alive"])

    def refuse_lacking(self) -> None:
        """Refuse a run that takes what no node of the cluster has.

        Raises:
            RemoteError: The cluster lacks a resource. Ray itself would wait for ever.
        """
        refusal = self.refusal()
        if refusal is not None:
            raise refusal

    def refusal(self) -> RemoteError | None:
        """Return the refusal of a run that takes what no node of the cluster has now, if any."""
        return self.refusal_of(self._resources, self.nodes())

    def refusal_of(
        self, resources: Resources, nodes: Iterable[Mapping[str, float]]
    ) -> RemoteError | None:
        """Return the refusal of a run that takes what no node has; None where one has it.

        Args:
            resources: What the run takes.
            nodes: What each node has; see `nodes`.
        """
        short = lacking(resources, nodes)
        if short is None:
            return None
        wanted = with_default(resources)
        shown = ", ".join(f"{wanted[name]:g} {name}" for name in short)
        closest = ", ".join(f"{has:g} {name}" for name, has in short.items())
        return RemoteError(
            f"No node of the Ray cluster {self._remote.name} has {shown}: the closest has "
            f"{closest}.",
            next_step="Add a node that has it, or change the remote's resources; see what there "
            "is: ray status",
            remote=self._remote.name,
            problem="resources_lacking",
        )

    def start_actor(self) -> "RayActor":
        """Ask for the process of a run. It starts as soon as a worker has room for it."""
        options = ray_options(self._resources)
        with self._failures("didn't start a process"):
            actor = _REMOTE(_Actor).options(**options, max_restarts=0).remote()
        return RayActor(self, actor)

    def runners(self) -> dict[str, Resources]:
        """Return what each run takes that has an actor, also one that waits for room, by its id."""
        with self._failures("can't be reached"):
            list_actors: Callable[..., Any] = ray.util.list_named_actors
            found = list_actors(all_namespaces=True)
        return dict(read_runner_name(one["name"]) for one in found if one["namespace"] == NAMESPACE)

    def end_runner(self, run_id: str, resources: Resources) -> None:
        """End the actor of a run, if there is one with these resources."""
        name = runner_name(run_id, resources)
        with self._failures("can't be reached"), suppress(ValueError):  # there is none
            ray.kill(ray.get_actor(name, namespace=NAMESPACE), no_restart=True)

    def start_runner(
        self, run_id: str, payload: bytes, *, wait_s: float = _BROKEN_WITHIN_S
    ) -> None:
        """Start the process of a run, which outlives this one, unless there is one.

        Args:
            run_id: The id of the run for its actor: unique among all states that use the cluster.
            payload: What it is begun with, also when it is started again.
            wait_s: How long to wait for an error of the worker, in seconds.

        Raises:
            RemoteError: A worker has room for it, but can't start it.
        """
        options = ray_options(self._resources)
        with self._failures("didn't start a process"):
            actor = _REMOTE(_Runner).options(
                **options,
                name=runner_name(run_id, self._resources),
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,  # the registry counts, and ends a run that ends its workers
            )
            begun = actor.remote(payload).ready.remote()
            with suppress(GetTimeoutError):  # no worker has room yet
                ray.get(begun, timeout=wait_s)

    @contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        name = self._remote.name
        try:
            yield
        except RayActorError as lost:
            refusal = _refusal_of(lost)
            if refusal is not None:
                raise RemoteError(
                    f"A worker of the Ray cluster {name} can't begin the run: {refusal}",
                    next_step="See that callers and workers have the same version of ryecore.",
                    remote=name,
                    problem="worker_refused",
                ) from None
            raise RemoteError(
                f"The worker of the Ray cluster {name} that ran this died; whether it had its "
                f"effect is unknown: {_first_line(lost)}",
                next_step="Look at its effect before you execute it again; see the workers: "
                "ray status",
                remote=name,
                problem="worker_lost",
            ) from None
        except (RayError, ConnectionError, ValueError, RuntimeError) as problem:
            raise RemoteUnavailable(
                f"The Ray cluster {name} {what}: {_first_line(problem)}",
                next_step="See that it runs: ray status",
                remote=name,
            ) from None


class RayActor:
    """The process of one run on a worker. Its methods block, for a bounded time."""

    def __init__(self, cluster: RayCluster, actor: Any) -> None:
        self._cluster = cluster
        self._actor = actor
        self._ready = actor.ready.remote()

    def is_ready(self, wait_s: float) -> bool:
        """Return whether the process runs; wait for that at most `wait_s` seconds.

        Raises:
            RemoteError: It died, with the problem `NEVER_BEGAN`: nothing ran.
        """
        with self._cluster._failures("didn't start a process"):
            try:
                ray.get(self._ready, timeout=wait_s)
            except GetTimeoutError:
                return False
            except RayActorError as lost:
                if _refusal_of(lost) is not None:
                    raise
                name = self._cluster.name
                raise RemoteError(
                    f"A worker of the Ray cluster {name} died before it was given anything to "
                    f"run: {_first_line(lost)}",
                    next_step="See the workers: ray status",
                    remote=name,
                    problem=NEVER_BEGAN,
                ) from None
        return True

    def begin(self, payload: bytes) -> None:
        """Begin the run."""
        self._get(self._actor.begin.remote(payload), _ANSWER_S)

    def poll(self, after: int, log_after: int, wait_s: float) -> Mapping[str, Any]:
        """Return what has happened since; see `ray_worker.py`."""
        found = self._get(self._actor.poll.remote(after, log_after, wait_s), wait_s + _ANSWER_S)
        document: Mapping[str, Any] = json.loads(found)
        return document

    def stop(self) -> None:
        """Ask the run to stop."""
        self._get(self._actor.stop.remote(), _ANSWER_S)

    def end(self) -> None:
        """End the process, and with it what it has started."""
        with suppress(RayError, ConnectionError, ValueError):
            ray.kill(self._actor, no_restart=True)

    def _get(self, asked: Any, within_s: float) -> Any:
        with self._cluster._failures("didn't answer"):
            return ray.get(asked, timeout=within_s)


def _connect(address: str, remote: str) -> None:
    """Connect this process, where neither ryecore nor its host has done that."""
    if ray.is_initialized() and address in (_connected or {AUTO}):
        return
    if ray.is_initialized():
        raise RemoteError(
            f"This process is connected to another Ray cluster than that of {remote}, and can be "
            "connected to one alone.",
            next_step="Use one Ray cluster in a process.",
            remote=remote,
        )
    _connected.clear()  # its host may have ended the connection that was there
    log, level = logging.getLogger("ray"), logging.getLogger("ray").level
    log.setLevel(logging.ERROR)  # it warns that it leaves the host's signal handlers as they are
    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            log_to_driver=False,  # what tools print comes back with their results
            configure_logging=False,
        )
    finally:
        log.setLevel(level)
    _connected.add(address)


def _refusal_of(lost: BaseException) -> str | None:
    """Return what a process raised as it was made, of Ray's text that ends with its traceback."""
    text = str(lost)
    if "creation task" not in text:
        return None
    return text.strip().splitlines()[-1].partition(": ")[2] or None


def _first_line(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return lines[0].rstrip(".") + "."
