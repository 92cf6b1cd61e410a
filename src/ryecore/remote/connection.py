"""The nodes of an open project: connected when first needed, and pushed to when they ask for it.

Source: docs/design/remote.md#at-home.
"""

import hashlib
import os
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from io import FileIO
from pathlib import Path
from typing import Final
from urllib.parse import quote

import anyio
import anyio.to_thread
from anyio.lowlevel import current_token

from ryecore.bounded_http import BodyBounds
from ryecore.convert.json_text import make_encoder
from ryecore.convert.strict import RECORDS, WIRE, ConversionError
from ryecore.errors import InputError, RemoteError, RemoteUnavailable, RemoteUntrusted
from ryecore.items.refs import ItemRef
from ryecore.lillux.keys import PublicKey, SigningKey, seal_envelope
from ryecore.remote.client import NodeClient
from ryecore.remote.config import Remote, RemotesReader
from ryecore.remote.plan import PushPlan, PushPlanner, make_plan
from ryecore.remote.ports import Delivery, NodeEvent
from ryecore.remote.protocol.models import (
    MAX_PARAMETER_BYTES,
    CancelBody,
    ExecuteBody,
    RunState,
    decode_answer,
)
from ryecore.remote.push import Progress, PushProgress, push
from ryecore.remote.secrets import RemoteSecrets
from ryecore.state.waiting import run_in_thread

__all__ = ["ConnectedNode", "NodePool"]

_encode: Final = make_encoder()
_MAX_EVENT_BYTES: Final = 1024 * 1024
_MAX_EVENTS_BYTES: Final = 1024 * 1024 * 1024
_EVENTS_TIMEOUT_S: Final = 60.0
_SLOWEST_BYTES_PER_S: Final = 64 * 1024
_EARLY_PAUSE_S: Final = 0.5
_PARTIAL: Final = 206
_BOX_KEY_BYTES: Final = 32
_BOX_KEY_KEPT_S: Final = 60.0


class ConnectedNode:
    """A node that a remote names; see `Node`.

    Args:
        remote: The remote.
        load_key: Returns the author's key, which signs requests.
        planner: Plans pushes.
        secrets: Finds the secrets of a call.
    """

    def __init__(
        self,
        remote: Remote,
        load_key: Callable[[], SigningKey],
        planner: PushPlanner,
        secrets: RemoteSecrets,
    ) -> None:
        self.settings = remote.settings
        self.client = NodeClient(remote, load_key)
        self._name = remote.name
        self._load_key = load_key
        self._planner = planner
        self._secrets = secrets
        self._plan: PushPlan | None = None
        self._pushing = anyio.Lock()
        self._pushed = ""
        self._pushes = 0
        self._box_key: tuple[bytes, float] = b"", 0.0

    @property
    def remote(self) -> str:
        """The name of the remote."""
        return self._name

    @property
    def key(self) -> PublicKey:
        """The node's public key, from the signed configuration."""
        return self.client.remote.key

    @property
    def caller(self) -> str:
        """The fingerprint of the key that signs the requests."""
        return self.client.caller

    @property
    def spaces(self) -> Mapping[str, Path]:
        """The folders at home that the node has copies of: `project` and `user`."""
        return self._planner.spaces

    async def snapshot(self, ref: ItemRef) -> str:
        """Return the id of the snapshot that a run gets now. Nothing is sent.

        Raises:
            InputError: The item doesn't travel, or the files can't.
        """
        plan = await self._current_plan()
        left = plan.left_out_item(ref)
        if left is not None:
            raise InputError(
                f"{ref} doesn't travel to {self._name}, because its file in {left.space} space "
                f"{left.reason}: {self.spaces[left.space] / left.path}",
                next_step="Change that, and sign it again; a secret travels where the remote's "
                "secrets list it. See what travels: rye remote plan",
            )
        return plan.snapshot.id

    async def _current_plan(self) -> PushPlan:
        include = self.settings.push.include
        self._plan = self._planner.current(include)
        if self._plan is None:
            self._plan = await make_plan(self._planner, include, self._find_room)
        return self._plan

    async def _find_room(self) -> int | None:
        """Return how many bytes the node keeps for this caller at most; None where it can't say."""
        try:
            return (await self.client.status()).max_stored_bytes
        except RemoteError:
            return None  # the request itself says why

    async def seal(self, ref: ItemRef) -> str | None:
        """Return the secrets of a tool's call, sealed for the node; None where it has none.

        Raises:
            RemoteError: The node can't be reached, or has another key.
            RyeError: The tool's chain can't be verified.
        """
        listed = self.settings.secrets
        secrets = await anyio.to_thread.run_sync(self._secrets, ref, listed) if listed else None
        if not secrets:
            return None
        return b64encode(seal_envelope(await self._recipient(), secrets)).decode()

    async def _recipient(self) -> bytes:
        """Return the box key of the node, from the identity that the node's key has signed."""
        box_key, until_s = self._box_key
        if time.monotonic() > until_s:
            identity, key = await self.client.identity()
            try:
                box_key = b64decode(identity.box_key, validate=True)
            except ValueError:
                box_key = b""
            if key != self.key or len(box_key) != _BOX_KEY_BYTES:
                raise RemoteUntrusted(
                    f"The node {self._name} has another key than in remotes.yaml.",
                    next_step=f"Compare it with its operator's: rye remote check {self._name}",
                    remote=self._name,
                )
            self._box_key = box_key, time.monotonic() + _BOX_KEY_KEPT_S
        return box_key

    async def push(self, progress: Progress | None = None) -> PushProgress:
        """Send what the node lacks of the project as it is now."""
        return await self._push(await self._current_plan(), progress)

    async def _push(self, plan: PushPlan, progress: Progress | None = None) -> PushProgress:
        return await push(self.client, plan, progress=progress)

    async def execute(
        self,
        body: ExecuteBody,
        *,
        within_s: float | None = None,
        delivery: Delivery | None = None,
    ) -> RunState:
        """Start a run, or find it under its id; push the snapshot first where the node lacks it.

        Raises:
            RemoteUnavailable: The node can't be reached. Whether it has begun is unknown.
            RemoteError: The node refuses it. Nothing runs.
        """
        sent = _body(body)
        try:
            return await self._execute(body, sent, within_s, delivery)
        except RemoteError as refused:
            if refused.problem != "snapshot_missing":
                raise
        pushes = self._pushes
        async with self._pushing:  # of many calls at once, one pushes
            if self._pushed != body.snapshot or self._pushes == pushes:
                await self._push_for(body)
                self._pushed, self._pushes = body.snapshot, self._pushes + 1
        return await self._execute(body, sent, within_s, delivery)

    async def _push_for(self, body: ExecuteBody) -> None:
        """Push the snapshot of a request, if the project is still what it was then."""
        plan = self._plan
        if plan is None or plan.snapshot.id != body.snapshot:
            plan = await self._current_plan()
        if plan.snapshot.id != body.snapshot:
            raise RemoteError(
                f"The project was changed since the run was requested, and {self._name} lacks the "
                "files of that time.",
                next_step="Execute it again.",
                remote=self._name,
                problem="snapshot_missing",
            )
        await self._push(plan)

    async def _execute(
        self, body: ExecuteBody, sent: bytes, within_s: float | None, delivery: Delivery | None
    ) -> RunState:
        found = await self.client.execute(
            sent, wait_s=body.wait_s, within_s=within_s, delivery=delivery
        )
        self._check(found, body.thread_id)
        return found

    async def state(
        self, thread_id: str, *, wait_s: float = 0.0, within_s: float | None = None
    ) -> RunState | None:
        """Return the state of a run; None where the node has none of this id.

        A node that doesn't wait for the end, as it is asked to, isn't asked again at once.
        """
        asked_s = time.monotonic()
        try:
            found = await self.client.state(thread_id, wait_s=wait_s, within_s=within_s)
        except RemoteError as refused:
            if refused.problem == "not_found":
                return None
            raise
        self._check(found, thread_id)
        if found.report is None:
            early_s = asked_s + wait_s - time.monotonic()
            await anyio.sleep(min(max(early_s, 0.0), _EARLY_PAUSE_S))
        return found

    async def cancel(self, thread_id: str, body: CancelBody) -> RunState | None:
        """Ask a run to stop, and return its state; None where the node has none of this id."""
        try:
            found = await self.client.cancel(thread_id, body)
        except RemoteError as refused:
            if refused.problem == "not_found":
                return None
            raise
        self._check(found, thread_id)
        return found

    def _check(self, found: RunState, thread_id: str) -> None:
        if found.thread_id != thread_id or (found.report is None) != (found.status == "running"):
            raise RemoteUntrusted(
                f"The node {self._name} answered with the state of another run.",
                next_step="See that both ends run the same version of ryecore.",
                remote=self._name,
            )

    async def events(self, thread_id: str, *, after: int = 0) -> AsyncGenerator[NodeEvent, None]:
        """Stream the events of a run behind a number, until it has ended.

        Raises:
            RemoteUnavailable: The node can't be reached any more.
            RemoteUntrusted: It sends what can't be read.
        """
        headers = {"Accept": "text/event-stream"}
        if after:
            headers["Last-Event-ID"] = str(after)
        bounds = BodyBounds(_MAX_EVENT_BYTES, _MAX_EVENTS_BYTES)
        stream = self.client.stream(
            f"/runs/{quote(thread_id)}/events",
            headers=headers,
            bounds=bounds,
            read_timeout_s=_EVENTS_TIMEOUT_S,
        )
        async with stream as response, aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:  # each holds whole events
                for text in piece.decode("utf-8", "replace").split("\n\n"):
                    event = _read_event(text, self._name)
                    if event is not None and event.id > after:
                        after = event.id
                        yield event

    async def read_object(self, sha256: str, size_bytes: int, path: Path) -> None:
        """Read an object into a file, whose hash is checked as it arrives.

        What an earlier attempt has left in the file isn't read again. It may take the remote's
        `timeout_s`, and a second for each 64 KiB.

        Raises:
            RemoteUnavailable: The node can't be reached, or sends it too slowly. What came stays.
            RemoteUntrusted: It isn't what its hash says. The file is removed.
            OSError: The file can't be written. It is removed.
        """
        longest_s = self.settings.timeout_s + size_bytes / _SLOWEST_BYTES_PER_S
        try:
            with anyio.fail_after(longest_s):
                await self._read_object(sha256, size_bytes, path)
        except TimeoutError:
            raise RemoteUnavailable(
                f"The node {self._name} didn't send {size_bytes:,} bytes in {longest_s:.0f} s.",
                next_step="Try again; where the network is slow, raise the remote's timeout_s.",
                remote=self._name,
            ) from None
        except (RemoteUntrusted, OSError):
            with suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108 - quick, and never cancelled half way
            raise

    async def _read_object(self, sha256: str, size_bytes: int, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with FileIO(os.open(path, flags, 0o600), "r+b") as file:
            digest = await run_in_thread(hashlib.file_digest, file, "sha256")
            if file.tell() < size_bytes:
                digest = await self._read_rest(sha256, size_bytes, file, digest)
            if file.tell() != size_bytes or digest.hexdigest() != sha256:
                raise RemoteUntrusted(
                    f"The node {self._name} sent another object than {sha256[:12]}.",
                    next_step="Try again; if that doesn't help, ask the node's operator.",
                    remote=self._name,
                )

    async def _read_rest(
        self, sha256: str, size_bytes: int, file: FileIO, digest: "hashlib._Hash"
    ) -> "hashlib._Hash":
        """Read an object from where a file of its beginning ends; return the digest of all."""
        headers = {"Range": f"bytes={file.tell()}-"} if file.tell() else {}
        unwritten: OSError | None = None
        stream = self.client.stream(
            f"/objects/{sha256}", headers=headers, bounds=BodyBounds(size_bytes)
        )
        async with stream as response, aclosing(response.aiter_bytes()) as pieces:
            if headers and response.status_code != _PARTIAL:  # it sends all of it
                file.seek(0)
                file.truncate()
                digest = hashlib.sha256()
            async for piece in pieces:
                digest.update(piece)
                try:
                    _write_all(file.fileno(), piece)
                except OSError as problem:
                    unwritten = problem  # raised outside the stream, where it is the node's
                    break
        if unwritten is not None:
            raise unwritten
        return digest

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.aclose()


class NodePool:
    """The connected nodes of one Rye, each connected once."""

    def __init__(
        self,
        read: RemotesReader,
        load_key: Callable[[], SigningKey],
        planner: PushPlanner,
        secrets: RemoteSecrets,
    ) -> None:
        self._read = read
        self._load_key = load_key
        self._planner = planner
        self._secrets = secrets
        self._nodes: dict[Remote, tuple[object, ConnectedNode]] = {}

    async def connect(self, target: str | Remote) -> ConnectedNode:
        """Return the node of a target, `remote` or `remote:NAME`, or of a remote. Nothing is sent.

        Raises:
            InputError: There is no such remote, or it is not a node.
            RyeError: A remotes.yaml isn't signed by a trusted key, or has problems.
        """
        remote = self._read().find(target) if isinstance(target, str) else target
        _ = remote.key  # what is no node has none, and is refused
        loop, node = self._nodes.get(remote, (None, None))
        if node is None or loop != current_token():  # connections belong to an event loop
            node = ConnectedNode(remote, self._load_key, self._planner, self._secrets)
            self._nodes[remote] = current_token(), node
        return node

    async def aclose(self) -> None:
        """Close all connections."""
        nodes, self._nodes = self._nodes, {}
        for loop, node in nodes.values():
            if loop == current_token():
                await node.aclose()


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _body(body: ExecuteBody) -> bytes:
    try:
        sent = _encode(WIRE.write(body)).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"The parameters can't be sent as JSON: {problem}.",
            next_step="Pass text, finite numbers, true, false, null, lists and mappings alone.",
        ) from None
    if len(sent) > MAX_PARAMETER_BYTES:
        raise InputError(
            f"The parameters take {len(sent):,} bytes, more than {MAX_PARAMETER_BYTES:,}.",
            next_step="Put large data into a file that push.include names.",
        )
    return sent


def _read_event(text: str, remote: str) -> NodeEvent | None:
    """Read one event of a stream; None for one without data, such as a comment."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name:
            fields[name] = value.removeprefix(" ")
    if "data" not in fields:
        return None
    try:
        document = {
            "id": int(fields["id"]),
            "event": fields["event"],
            "data": decode_answer(fields["data"].encode()),
        }
        return RECORDS.read(document, NodeEvent)
    except (KeyError, ValueError, ConversionError):
        raise RemoteUntrusted(
            f"The node {remote} sends events that can't be read.",
            next_step="See that both ends run the same version of ryecore.",
            remote=remote,
        ) from None
