"""The values of a graph's run: objects named by their digests, in a folder or a shared store."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Protocol

from ryecore.errors import StateError, StoreError
from ryecore.items.files import keep_out_of_git
from ryecore.lillux.digests import ContentStore
from ryecore.state.attestation import OBJECTS_FOLDER, check_graph_folders
from ryecore.state.model import Durability
from ryecore.state.object_store import ObjectStore
from ryecore.state.waiting import run_in_thread, run_off_loop

__all__ = ["FolderRunObjects", "RunObjects", "SharedRunObjects"]


class RunObjects(Protocol):
    """The values that a run's positions refer to.

    If durable, they survive a power cut once `synced` was awaited.
    """

    @property
    def is_durable(self) -> bool:
        """Whether they survive a power cut."""
        ...

    def prepare(self) -> None:
        """Prepare for a run that writes."""
        ...

    def put(self, content: bytes) -> str:
        """Take an object, and return its digest."""
        ...

    def get(self, digest: str) -> bytes:
        """Return an object. A missing or altered one is refused."""
        ...

    async def stored(self) -> None:
        """Wait until all objects so far survive the death of the process."""
        ...

    async def synced(self) -> None:
        """Wait until all objects so far have the promised durability."""
        ...


class FolderRunObjects:
    """Objects in a folder, shared by all runs of a project."""

    def __init__(self, state: Path, durability: Durability) -> None:
        self.is_durable = durability == "machine"
        self._folder = state / OBJECTS_FOLDER
        self._unsynced: list[bytes] = []

    @cached_property
    def _store(self) -> ContentStore:
        return ContentStore(self._folder, durable=False)

    @cached_property
    def _durable(self) -> ContentStore:
        return ContentStore(self._folder, durable=True)

    def prepare(self) -> None:
        """Make the folder for a run that writes, unless a link of a clone is in its place."""
        try:
            check_graph_folders(self._folder.parent)
            _ = self._store  # which makes the folder
            keep_out_of_git(self._folder, durable=self.is_durable)
        except OSError as problem:
            raise StateError(
                f"{self._folder} can't be written: {problem.strerror or problem}.",
                next_step="See that its folder can be written, and the disk has room.",
            ) from problem

    def put(self, content: bytes) -> str:
        """Store an object, which survives the death of the process, and return its digest."""
        digest = self._store.put(content)
        if self.is_durable:
            self._unsynced.append(content)
        return digest

    def get(self, digest: str) -> bytes:
        """Return an object. A missing or altered one is refused."""
        return self._store.get(digest)

    def has(self, digest: str) -> bool:
        """Return whether an object is here. No folder is made."""
        return self._folder.is_dir() and self._store.has(digest)

    async def stored(self) -> None:
        """Do nothing: what was put is stored."""

    async def synced(self) -> None:
        """Wait until all objects so far have the promised durability."""
        if self._unsynced:
            await run_off_loop("machine", self._sync)

    def _sync(self) -> None:
        waiting = tuple(self._unsynced)
        for content in waiting:
            self._durable.put(content)  # for content that is stored already, this is a sync
        del self._unsynced[: len(waiting)]


class SharedRunObjects:
    """Objects of one run in a store that machines share.

    They are sent together, before a record is written that names them. Objects that an earlier run
    has left in the folder are read there.
    """

    def __init__(self, shared: ObjectStore, folder: FolderRunObjects) -> None:
        self.is_durable = folder.is_durable
        self._shared = shared
        self._folder = folder
        self._waiting: dict[str, bytes] = {}

    def prepare(self) -> None:
        """Do nothing: a space needs no preparation."""

    def put(self, content: bytes) -> str:
        """Take an object, which `stored` sends, and return its digest."""
        digest = hashlib.sha256(content).hexdigest()
        self._waiting[digest] = content
        return digest

    def get(self, digest: str) -> bytes:
        """Return an object. A missing or altered one is refused."""
        waiting = self._waiting.get(digest)
        if waiting is not None:
            return waiting
        try:
            return self._shared.get(digest)
        except StoreError:
            if not self._folder.has(digest):
                raise
            return self._folder.get(digest)

    async def stored(self) -> None:
        """Wait until all objects so far are in the store."""
        if self._waiting:
            await run_in_thread(self._send)

    async def synced(self) -> None:
        """Wait until all objects so far are in the store."""
        await self.stored()

    def _send(self) -> None:
        for digest, content in tuple(self._waiting.items()):
            self._shared.put(content, sha256=digest)
            del self._waiting[digest]
