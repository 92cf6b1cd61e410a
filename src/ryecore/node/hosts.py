"""The open Rye of each space, kept while it is used, and for a while after.

Source: docs/design/remote.md#on-the-node; decisions 67 to 69.
"""

import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from attrs import define, field

from ryecore.actions.settings import AUDIT
from ryecore.frozen import frozen
from ryecore.host_factory import ENVIRONMENT_FACTORY
from ryecore.lillux.keys import PublicKey
from ryecore.node.callers import Caller
from ryecore.node.content import CallerContent, NodeContent
from ryecore.node.problems import NodeProblem, refusal
from ryecore.node.spaces import RunSpace, make_space, remove_space, reopen_space
from ryecore.policy.environment import InheritEnv, is_credential
from ryecore.runs.tasks import Tasks
from ryecore.rye import Rye
from ryecore.state.records import put_run_key
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.agent.deps import AgentRunnerDeps

__all__ = ["Host", "HostOptions", "HostPool", "snapshot_missing"]

T = TypeVar("T")

_log: Final = logging.getLogger("ryecore.node")
_FEW_FILES: Final = 200
"""So many files are looked at sooner than a thread is woken for it."""

_MAX_IDLE: Final = 8
"""The most spaces that are kept for later runs."""

_IDLE_S: Final = 900.0
_LOOK_EACH_S: Final = 60.0
_WARM_MEMORY_MIB: Final = 128


@frozen
class HostOptions:
    """What the node gives to each Rye that it opens.

    Attributes:
        agent: The models.
        deps_factory: The factory that gives the processes of graphs the same models.
        environ: The node's environment, of which credentials are left out.
        operator_keys: The keys that count where a caller's own key doesn't.
        state: The address of the state that all of them share; None for one of each space's own.
        run_key: The private key, in PEM, that signs records in a shared state.
    """

    agent: "AgentRunnerDeps | None" = None
    deps_factory: str | None = None
    environ: Mapping[str, str] = field(factory=lambda: dict(os.environ), repr=False)
    operator_keys: tuple[PublicKey, ...] = ()
    state: str | None = field(default=None, repr=False)  # it may hold a password
    run_key: bytes | None = field(default=None, repr=False)


@define(eq=False)
class Host:
    """A space with its open Rye.

    Attributes:
        space: The space.
        rye: Its Rye.
        graphs: Whether each tool that was executed is a graph, by its id.
    """

    space: RunSpace
    rye: Rye
    _content: CallerContent
    graphs: dict[str, bool] = field(factory=dict)
    _users: int = 0
    _is_alone: bool = False
    _had_a_run: bool = False
    _used_at: float = 0.0
    _closing: anyio.Event = field(factory=anyio.Event)
    _removed: anyio.Event = field(factory=anyio.Event)


_Key = tuple[str, str, str]


class HostPool:
    """The hosts of all callers. What it opens ends with `tasks`."""

    def __init__(self, content: NodeContent, tasks: Tasks, options: HostOptions) -> None:
        self._content = content
        self._tasks = tasks
        self._options = options
        self._hosts: dict[_Key, list[Host]] = {}
        self._locks: dict[_Key, anyio.Lock] = {}
        self._leaving: set[tuple[str, Host]] = set()

    def has(self, caller: Caller, snapshot_id: str) -> bool:
        """Return whether a space of a snapshot is open."""
        return (caller.fingerprint, snapshot_id, caller.trust) in self._hosts

    def find_place(self, caller: Caller, snapshot_id: str, item_id: str) -> str | None:
        """Return the name of the space in which a tool is likely to run, if one is open.

        Only where the item is known to be a tool that has no thread: a graph that is recovered
        would begin there, though another run may have changed the files.
        """
        hosts = self._hosts.get((caller.fingerprint, snapshot_id, caller.trust), ())
        likely = (one for one in hosts if one.graphs.get(item_id) is False)
        return next((one.space.folder.name for one in likely), None)

    @asynccontextmanager
    async def borrow(
        self,
        caller: Caller,
        snapshot_id: str,
        *,
        space: str | None = None,
        alone: bool = False,
        secrets: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Host]:
        """Borrow a host of a snapshot whose files no run has changed.

        Args:
            caller: Whose it is.
            snapshot_id: The snapshot.
            space: The folder's name of the space of an earlier process; None for any space.
            alone: Whether nothing else may run in it meanwhile.
            secrets: Variables that only tools get whose signed elements name them. Such a Rye is
                closed afterwards.

        Raises:
            NodeProblem: The snapshot or an object of it is missing, or can't become a space.
        """
        key = (caller.fingerprint, snapshot_id, caller.trust)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = anyio.Lock(fast_acquire=True)
        async with lock:
            if space is None:
                host = await self._find(key, alone=alone) or await self._open(key, caller, None)
            else:
                host = self._find_space(key, space) or await self._open(key, caller, space)
            host._users += 1
            host._is_alone = alone
        try:
            if not secrets:
                yield host
                return
            async with self._make_rye(host.space, caller, secrets) as rye:
                yield Host(host.space, rye, host._content, host.graphs)
        finally:
            host._users -= 1
            host._had_a_run = True  # which may have changed the files
            host._is_alone = False
            host._used_at = time.monotonic()
            self._close_oldest()

    async def with_room(self, fingerprint: str, work: Callable[[], T]) -> T:
        """Do work that waits for the disk, in a thread; again with more room where there is none.

        The room is that of the caller's spaces which no run uses.

        Raises:
            NodeProblem: The work is refused, also with more room.
        """
        try:
            return await run_in_thread(work)
        except NodeProblem as refused:
            if refused.problem.type != "no_room":
                raise
        await self._release(fingerprint)
        return await run_in_thread(work)

    async def _release(self, fingerprint: str) -> None:
        """Remove the spaces of a caller that no run uses."""
        for _, key, host in self._idle():
            if key[0] == fingerprint:
                self._close(key, host)
        for host in [one for whose, one in self._leaving if whose == fingerprint]:
            await host._removed.wait()

    def _find_space(self, key: _Key, space: str) -> Host | None:
        hosts = self._hosts.get(key, ())
        return next((host for host in hosts if host.space.folder.name == space), None)

    async def _find(self, key: _Key, *, alone: bool) -> Host | None:
        for host in tuple(self._hosts.get(key, ())):
            is_shared = host._users and host.space.is_fresh and not host._is_alone and not alone
            if is_shared and not host._had_a_run:
                return host
            if is_shared or not host._users:
                if await _is_unchanged(host.space):
                    host._had_a_run = False
                    return host
                if not host._users:
                    self._close(key, host)
        return None

    async def _open(self, key: _Key, caller: Caller, name: str | None) -> Host:
        content = self._content.of(caller)
        snapshot = await run_in_thread(content.snapshot, key[1])
        if name is None:
            if snapshot is None:
                raise snapshot_missing()
            make = partial(make_space, snapshot, content, trust=caller.trust)
            space = await self.with_room(caller.fingerprint, make)
            if self._options.run_key is not None:
                await run_in_thread(put_run_key, space.user / ".ai", self._options.run_key)
        else:
            found = None
            if snapshot is not None:
                found = await run_in_thread(reopen_space, content, snapshot, name)
            if found is None:
                raise refusal(
                    "failed",
                    "The folders of the run are gone from the node.",
                    next_step="Start it again.",
                )
            space = found
        host = Host(space, self._make_rye(space, caller, {}), content)
        ready, failures = anyio.Event(), list[Exception]()
        self._tasks.start_soon(self._keep_space, host, ready, failures)
        await ready.wait()
        if failures:
            raise failures[0]
        self._hosts.setdefault(key, []).append(host)
        return host

    async def _keep_space(self, host: Host, ready: anyio.Event, failures: list[Exception]) -> None:
        try:
            await self._keep_open(host, ready, failures)
        finally:
            host._removed.set()
            self._leaving -= {one for one in self._leaving if one[1] is host}

    async def _keep_open(self, host: Host, ready: anyio.Event, failures: list[Exception]) -> None:
        """Hold a Rye open until it is to be closed, in the task that has entered it."""
        try:
            async with host.rye:
                ready.set()
                await host._closing.wait()
        except Exception as problem:  # of any kind: it belongs to whoever waits for the host
            failures.append(problem)
        finally:
            ready.set()
        # Not where the node ends: the next start takes up what ran there.
        try:
            await run_in_thread(remove_space, host.space, host._content)
        except Exception:  # of any kind: it mustn't end the node
            _log.exception("The space %s can't be removed.", host.space.folder.name)

    def _close(self, key: _Key, host: Host) -> None:
        self._hosts[key].remove(host)
        if not self._hosts[key]:
            del self._hosts[key]
        self._leaving.add((key[0], host))
        host._closing.set()

    async def close_idle(self) -> None:
        """Close what wasn't used for a while, until cancelled."""
        while True:
            await anyio.sleep(_LOOK_EACH_S)
            for used_at, key, host in self._idle():
                if time.monotonic() - used_at > _IDLE_S:
                    self._close(key, host)
            unused = [key for key in self._locks if key not in self._hosts]
            for key in unused:
                if not self._locks[key].locked():
                    del self._locks[key]

    def _close_oldest(self) -> None:
        """Close the host that was unused for the longest time, where there are too many."""
        idle = self._idle()
        if len(idle) > _MAX_IDLE:
            _, key, host = min(idle, key=lambda one: one[0])
            self._close(key, host)

    def _idle(self) -> list[tuple[float, _Key, Host]]:
        return [
            (host._used_at, key, host)
            for key, hosts in self._hosts.items()
            for host in hosts
            if not host._users and not self._locks[key].locked()
        ]

    def _make_rye(self, space: RunSpace, caller: Caller, secrets: Mapping[str, str]) -> Rye:
        options = self._options
        environ = {
            name: value
            for name, value in options.environ.items()
            if not is_credential(name, value) and not name.startswith(_OWN_VARIABLES)
        }
        keys: Collection[PublicKey] = options.operator_keys
        if caller.trust == "caller":
            keys = (*keys, caller.key)
        return Rye.open(
            space.project,
            user_space=space.user,
            environ={**environ, **secrets},
            inherit_env=_rule_for(secrets),
            trusted_keys=keys,
            cache_dir=_cache_of(space),
            agent=options.agent,
            # Keys in the node's environment reach no other process, so that no tool can read them.
            deps_factory=(
                None if options.deps_factory == ENVIRONMENT_FACTORY else options.deps_factory
            ),
            warm_memory_mib=_WARM_MEMORY_MIB,
            audit=options.environ.get(AUDIT),
            state=options.state,
        )


async def _is_unchanged(space: RunSpace) -> bool:
    if len(space.snapshot.files) <= _FEW_FILES:
        return space.is_unchanged()
    return await run_in_thread(space.is_unchanged)


def snapshot_missing() -> NodeProblem:
    """Return the refusal of a run whose snapshot isn't complete on the node."""
    return refusal(
        "snapshot_missing",
        "The snapshot, or an object of it, isn't on this node.",
        next_step="Push it, and repeat the request.",
    )


_OWN_VARIABLES: Final = ("RYE_", "USER_SPACE")


def _rule_for(secrets: Mapping[str, str]) -> InheritEnv:
    """Return what tools inherit, so that no secret reaches one that doesn't name it."""
    return "safe" if all(is_credential(name, secrets[name]) for name in secrets) else "none"


def _cache_of(space: RunSpace) -> Path:
    """Return the folder of sealed copies, which all spaces of one caller share."""
    return space.folder.parent.parent / "sealed"
