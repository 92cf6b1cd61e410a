"""An open node: its keys, callers, content, gate and runs, from its start to its end.

Source: docs/design/remote.md#on-the-node.
"""

import fcntl
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define

from ryecore.convert.money import write_usd
from ryecore.convert.prometheus import Sample
from ryecore.errors import ConfigError, RyeError, StateError
from ryecore.lillux.keys import PublicKey
from ryecore.lillux.locks import find_lock_holders
from ryecore.node.callers import Caller, Callers
from ryecore.node.content import NodeContent
from ryecore.node.database import open_node_database
from ryecore.node.gate import Gate
from ryecore.node.hosts import HostOptions
from ryecore.node.identity import NodeIdentity, load_node
from ryecore.node.run_table import RunTable
from ryecore.node.runs import NodeRuns
from ryecore.node.upkeep import keep_up
from ryecore.remote.protocol.models import NodeStatus
from ryecore.remote.queue_address import DEFAULT_QUEUE
from ryecore.runs.tasks import Tasks
from ryecore.rye import Rye
from ryecore.state.database import Database
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.agent.deps import AgentRunnerDeps

__all__ = ["NodeService", "open_node"]


@define(eq=False)
class NodeService:
    """An open node.

    Attributes:
        identity: Its keys and settings.
        database: Its database.
        callers: Who may call it.
        content: What the callers have pushed.
        gate: Which caller a request comes from.
        runs: The runs.
        shared: An open Rye of the state whose workers run everything; None without workers.
        is_accepting: Whether it takes new runs; not while it ends.
    """

    identity: NodeIdentity
    database: Database
    callers: Callers
    content: NodeContent
    gate: Gate
    runs: NodeRuns
    shared: Rye | None = None
    is_accepting: bool = True

    async def status_of(self, caller: Caller) -> NodeStatus:
        """Return the node's load, and the use of a caller's quotas."""
        content = self.content.of(caller)
        used_bytes = await run_in_thread(lambda: content.quota.used_bytes)
        table = RunTable(self.database)
        running = await table.count_running(caller.fingerprint)
        spent = await table.spent_microcents(caller.fingerprint)
        return NodeStatus(
            ryecore=self.identity.to_document().ryecore,
            running=running,
            max_running=caller.max_runs,
            stored_bytes=used_bytes,
            max_stored_bytes=caller.max_bytes,
            spent_microcents=spent,
            max_spend_microcents=caller.max_spend_microcents,
            is_accepting=self.is_accepting,
        )

    async def finish(self) -> None:
        """Take no new runs, and wait for the tools that run, for the time that node.yaml sets."""
        self.is_accepting = False
        await self.runs.finish_tools(self.identity.settings.shutdown_s)

    async def stop(self) -> None:
        """Take no new runs, and cancel those that run; the next start recovers them."""
        self.is_accepting = False
        await self.runs.stop()

    async def samples(self) -> list[Sample]:
        """Return the metrics of what is kept, and of what runs."""
        identity = self.identity
        version = identity.to_document().ryecore
        free = os.statvfs(identity.folder)
        samples: list[Sample] = [
            (
                "ryecore_node_info",
                (("version", version), ("node", identity.fingerprint)),
                1,
            ),
            ("ryecore_node_free_bytes", (), free.f_bavail * free.f_frsize),
        ]
        for status, count in (await RunTable(self.database).count_ended()).items():
            samples.append(("ryecore_node_ended_runs", (("status", status),), count))
        for caller in self.callers.list():
            labels = (("caller", caller.fingerprint), ("label", caller.label))
            found = await self.status_of(caller)
            samples += [
                ("ryecore_node_runs", labels, found.running),
                ("ryecore_node_spend_usd", labels, write_usd(found.spent_microcents)),
                ("ryecore_node_stored_bytes", labels, found.stored_bytes),
            ]
        if self.shared is not None:
            samples += await _samples_of(self.shared)
        return samples


async def _samples_of(shared: Rye) -> list[Sample]:
    """Return the metrics of queues and workers; that the state can't be read is one, too."""
    try:
        return [("ryecore_node_state_up", (), 1), *(await shared.cluster.status()).samples()]
    except RyeError:
        return [("ryecore_node_state_up", (), 0)]


@asynccontextmanager
async def open_node(
    folder: Path,
    *,
    agent: "AgentRunnerDeps | None" = None,
    deps_factory: str | None = None,
    environ: Mapping[str, str] | None = None,
    state: str | None = None,
    queue: str = DEFAULT_QUEUE,
) -> AsyncIterator[NodeService]:
    """Open a node. At its end nothing of its runs is left; the next start recovers them.

    Args:
        folder: Its folder.
        agent: The models that its runs may use.
        deps_factory: The factory that gives the processes of graphs the same models.
        environ: The environment of its runs, of which credentials are left out.
        state: The address of a shared state, to whose workers runs are handed; None to run them in
            this process.
        queue: The name of the workers' queue.

    Raises:
        ConfigError: There is no node, or another process serves it.
    """
    identity = load_node(folder)
    settings = identity.settings
    async with AsyncExitStack() as opened:
        opened.enter_context(_served_alone(folder))
        database = open_node_database(folder)
        try:
            callers = Callers(folder, identity.key)
            content = NodeContent(
                folder,
                max_object_bytes=settings.max_object_bytes,
                min_free_bytes=settings.min_free_bytes,
            )
            own = dict(os.environ if environ is None else environ)
            keys = await run_in_thread(_operator_keys, folder, own)
            options = HostOptions(agent, deps_factory, own, keys)
            shared = None
            if state is not None:
                shared = await opened.enter_async_context(
                    Rye.open(folder, environ=own, state=state)
                )
                await shared.cluster.status()  # refused here where it can't be reached
            runs = NodeRuns(
                identity.key,
                database,
                content,
                options,
                max_runs=settings.max_runs,
                box_key=identity.box_key,
                find_caller=callers.find,
                queue=None if shared is None else (shared, queue),
            )
            gate = Gate(database, callers, identity.fingerprint)
            tasks = Tasks()
            service = NodeService(identity, database, callers, content, gate, runs, shared)
            await tasks.open()
            try:
                await runs.begin()
                remove_handed = None if shared is None else shared.cluster.handed.prune
                unused_days = settings.unused_days
                tasks.start_soon(keep_up, database, content, callers, unused_days, remove_handed)
                tasks.start_soon(_extend_log, database)
                yield service
            finally:
                service.is_accepting = False
                await runs.aclose()  # in the reverse order of their beginning
                await tasks.close()
        finally:
            database.close()


async def _extend_log(database: Database) -> None:
    with suppress(StateError):  # syncs take longer then
        await run_in_thread(database.extend_log)


def _operator_keys(folder: Path, environ: Mapping[str, str]) -> tuple[PublicKey, ...]:
    """Return the keys that the operator's user space trusts."""
    listed = Rye.open(folder, environ=environ).trust.listed()
    return tuple(one.key for one in listed if one.space == "user" and one.status == "trusted")


@contextmanager
def _served_alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a node's folder, which ends with the process."""
    path = folder / "serve.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as problem:
        raise ConfigError(
            f"{path} can't be opened: {problem.strerror}.",
            next_step="Serve the node as the user who owns its folder.",
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holders = ", ".join(str(one.pid) for one in find_lock_holders(path))
            by = f": process {holders}" if holders else ""
            raise ConfigError(
                f"This node is served already{by}.",
                next_step="End that process first; one process serves a node.",
            ) from None
        yield
    finally:
        os.close(descriptor)
