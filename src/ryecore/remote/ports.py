"""What the runs of this room need of other machines, whichever way they are reached."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from attrs import define

from ryecore.errors import RyeError
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.lillux.keys import PublicKey
from ryecore.remote.protocol.models import CancelBody, ExecuteBody, RunState

__all__ = ["ClusterSender", "Delivery", "Node", "NodeEvent", "RunSender"]


@frozen
class NodeEvent:
    """An event of a run on a node.

    Attributes:
        id: Its number in the run, from 1.
        event: `status`, `run` or `tree`.
        data: The rest, as the node sent it.
    """

    id: int
    event: str
    data: Mapping[str, Any]


@define
class Delivery:
    """Where a request to run something may be.

    Attributes:
        is_possible: Whether the node may have it, or get it yet: an attempt to send it has begun,
            and the node hasn't refused that attempt.
    """

    is_possible: bool = False

    async def note(self, event: str, _: object) -> None:
        """Note that a request is being sent; the HTTP client calls this at several of its steps."""
        if event.endswith("send_request_headers.started"):
            self.is_possible = True


class Node(Protocol):
    """A node that a remote names, as its caller uses it.

    Each request is tried again while the node can't be reached, within the caller's time.
    """

    @property
    def remote(self) -> str:
        """The name of the remote."""
        ...

    @property
    def key(self) -> PublicKey:
        """The node's public key, from the signed configuration."""
        ...

    @property
    def caller(self) -> str:
        """The fingerprint of the key that signs the requests."""
        ...

    @property
    def spaces(self) -> Mapping[str, Path]:
        """The folders at home that the node has copies of: `project` and `user`."""
        ...

    async def snapshot(self, ref: ItemRef) -> str:
        """Return the id of the snapshot that a run gets now. Nothing is sent.

        Raises:
            InputError: The item doesn't travel, or the files can't.
        """
        ...

    async def seal(self, ref: ItemRef) -> str | None:
        """Return the secrets that a tool asks for, sealed for the node; None where it has none.

        Raises:
            RemoteError: The node can't be reached, or has another key.
            RyeError: The tool can't be verified.
        """
        ...

    async def execute(self, body: ExecuteBody, *, delivery: Delivery | None = None) -> RunState:
        """Start a run, or find it under its id; push the snapshot first where the node lacks it.

        Args:
            body: The request.
            delivery: Where it is noted whether the node may have the request.

        Raises:
            RemoteUnavailable: The node can't be reached. Whether it has begun is unknown.
            RemoteError: The node refuses it. Nothing runs.
        """
        ...

    async def state(self, thread_id: str, *, wait_s: float = 0.0) -> RunState | None:
        """Return the state of a run; None where the node has none of this id.

        Raises:
            RemoteUnavailable: The node can't be reached.
        """
        ...

    def events(self, thread_id: str, *, after: int = 0) -> AsyncGenerator[NodeEvent, None]:
        """Stream the events of a run behind a number, until it has ended.

        Raises:
            RemoteUnavailable: The node can't be reached any more.
        """
        ...

    async def cancel(self, thread_id: str, body: CancelBody) -> RunState | None:
        """Ask a run to stop, and return its state; None where the node has none of this id.

        Raises:
            RemoteUnavailable: The node can't be reached.
        """
        ...

    async def read_object(self, sha256: str, size_bytes: int, path: Path) -> None:
        """Read an object into a file, whose hash is checked as it arrives.

        What an earlier attempt has left in the file isn't read again.

        Raises:
            RemoteUnavailable: The node can't be reached. What came stays.
            RemoteUntrusted: It isn't what its hash says. The file is removed.
            OSError: The file can't be written. It is removed.
        """
        ...


class RunSender(Protocol):
    """What gives a run to a worker, and to another one after that one's death: DBOS, or Ray.

    The run is a row of a state that both ends share. Its methods block.
    """

    def enqueue(self, run_id: str, queue: str, priority: int) -> None:
        """Give a run to a worker of a queue, unless it was given to one already.

        Raises:
            RyeError: It can't be given to any; nothing runs.
        """
        ...

    def close(self) -> None:
        """Close the connections. Runs continue."""
        ...


class ClusterSender(RunSender, Protocol):
    """What gives a run to a worker of a cluster, where no worker looks for those that were lost."""

    def refuse_lacking(self) -> None:
        """Refuse a run that takes what the cluster lacks.

        Raises:
            RyeError: It lacks a resource, or can't be reached.
        """
        ...

    def lacking(self, run_ids: Iterable[str]) -> Mapping[str, RyeError]:
        """Return those of some runs that take what the cluster lacks by now, with their refusals.

        Raises:
            RyeError: The cluster can't be reached.
        """
        ...

    def forget(self, run_id: str) -> None:
        """Start no worker for a run any more.

        Raises:
            RyeError: The cluster can't be reached.
        """
        ...

    def send_again(self, run_ids: Iterable[str]) -> None:
        """Give those runs to workers that none has: their sender, or the whole cluster, died.

        Raises:
            RyeError: The cluster can't be reached.
        """
        ...
