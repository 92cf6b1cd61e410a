"""The push: the objects that a node lacks, sent in bodies of pieces.

Source: docs/design/remote.md#objects-and-pieces.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import anyio.to_thread

from ryecore.errors import RemoteError, RemoteUntrusted
from ryecore.frozen import frozen
from ryecore.remote.client import NodeClient
from ryecore.remote.plan import PushPlan, open_selected
from ryecore.remote.protocol.models import MAX_BODY_BYTES, Missing
from ryecore.remote.protocol.pieces import MAX_HEAD_BYTES, Piece, encode_pieces
from ryecore.remote.selection import FileIdentity, SelectedFile

__all__ = ["Progress", "PushProgress", "push"]

_MAX_ROUNDS: Final = 3
"""How often an object is sent that the node finds to be another one when it is complete."""


@frozen
class PushProgress:
    """How far a push is: the bytes that the node has of those that it lacked."""

    sent_bytes: int
    total_bytes: int
    files: int


Progress: TypeAlias = Callable[[PushProgress], None]


async def push(
    client: NodeClient, plan: PushPlan, *, progress: Progress | None = None
) -> PushProgress:
    """Send what a node lacks of a snapshot: one request and nothing else where it lacks nothing.

    Args:
        client: The node.
        plan: The snapshot, and its files.
        progress: Called after each request that sent objects.

    Returns:
        What was sent.

    Raises:
        RemoteUnavailable: The node can't be reached. What it has stays, and isn't sent again.
        RemoteUntrusted: The node asks for what isn't part of the snapshot.
        RemoteError: The node refuses objects, or a file was changed meanwhile.
    """
    for _ in range(_MAX_ROUNDS):
        answer = await client.offer(plan.snapshot)
        _check(answer.snapshot == plan.snapshot.id, client)
        missing = {one.sha256: one.have_bytes for one in answer.missing}
        for sha256, have_bytes in missing.items():
            source = plan.sources.get(sha256)
            _check(source is not None and 0 <= have_bytes <= source.identity.size_bytes, client)
        if not missing:
            return PushProgress(0, 0, 0)
        done = await _Sending(client, plan, missing, progress).run()
        if done is not None:
            return done
    raise RemoteError(
        f"The node {client.remote.name} has other content than was sent.",
        next_step="Try again; if that doesn't help, ask the node's operator.",
        remote=client.remote.name,
    )


class _Sending:
    """One pass over the objects that a node lacks."""

    def __init__(
        self,
        client: NodeClient,
        plan: PushPlan,
        missing: Mapping[str, int],
        progress: Progress | None,
    ) -> None:
        self._client = client
        self._sources = {sha256: plan.sources[sha256] for sha256 in missing}
        self._missing = dict(missing)
        self._progress = progress
        self._total_bytes = self._left_bytes()

    async def run(self) -> PushProgress | None:
        """Send all; return None where the node lacks as much as before, or more.

        It found an object to be another one, or it lies.
        """
        files = len(self._missing)
        while self._missing:
            before = self._left_bytes(), len(self._missing)
            body = await anyio.to_thread.run_sync(self._body)
            answer = await self._client.store(body)
            for sha256 in answer.stored:
                self._missing.pop(sha256, None)
            for one in answer.partial:
                self._note(one)
            if (self._left_bytes(), len(self._missing)) >= before:
                return None
            if self._progress is not None:
                sent_bytes = self._total_bytes - self._left_bytes()
                self._progress(PushProgress(max(sent_bytes, 0), self._total_bytes, files))
        return PushProgress(self._total_bytes, self._total_bytes, files)

    def _note(self, one: Missing) -> None:
        source = self._sources.get(one.sha256)
        if source is None or one.sha256 not in self._missing:
            return
        _check(0 <= one.have_bytes <= source.identity.size_bytes, self._client)
        self._missing[one.sha256] = one.have_bytes

    def _left_bytes(self) -> int:
        return sum(
            self._sources[sha256].identity.size_bytes - have_bytes
            for sha256, have_bytes in self._missing.items()
        )

    def _body(self) -> bytes:
        """Return the next body, as full as it may be."""
        return encode_pieces(self._pieces())

    def _pieces(self) -> Iterator[Piece]:
        room = MAX_BODY_BYTES
        for sha256, offset in self._missing.items():
            source = self._sources[sha256]
            size_bytes = source.identity.size_bytes
            room -= MAX_HEAD_BYTES
            if room < min(size_bytes - offset, 1):
                return
            length = min(room, size_bytes - offset)
            content = _read(source, offset, length, self._client.remote.name)
            room -= len(content)
            yield Piece(sha256, size_bytes, offset, content)


def _read(source: SelectedFile, offset: int, length: int, remote: str) -> bytes:
    """Read a part of the very file whose hash was made."""
    descriptor = open_selected(source)
    try:
        is_same = FileIdentity.of(os.fstat(descriptor)) == source.identity
        content = os.pread(descriptor, length, offset) if is_same else b""
        is_same = is_same and FileIdentity.of(os.fstat(descriptor)) == source.identity
    finally:
        os.close(descriptor)
    if not is_same or len(content) != length:
        raise RemoteError(
            f"{source.source} was changed while it was sent.",
            next_step="Execute it again when the file rests.",
            remote=remote,
            problem="snapshot_missing",
        )
    return content


def _check(is_fine: bool, client: NodeClient) -> None:
    if not is_fine:
        raise RemoteUntrusted(
            f"The node {client.remote.name} asks for what isn't part of the snapshot.",
            next_step="Ask the node's operator; nothing more was sent.",
            remote=client.remote.name,
        )
