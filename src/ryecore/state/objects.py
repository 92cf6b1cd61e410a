"""The values of graphs' runs: objects in a folder, named by their digests."""

from functools import cached_property
from pathlib import Path

from ryecore.errors import StateError
from ryecore.items.files import keep_out_of_git
from ryecore.lillux.digests import ContentStore
from ryecore.state.attestation import OBJECTS_FOLDER, check_graph_folders
from ryecore.state.model import Durability
from ryecore.state.waiting import run_off_loop

__all__ = ["Objects"]


class Objects:
    """Values that graphs' positions refer to: objects in a folder, named by their digests.

    If durable, they survive a power cut once `synced` was awaited.
    """

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

    async def synced(self) -> None:
        """Wait until all objects so far have the promised durability."""
        if self._unsynced:
            await run_off_loop("machine", self._sync)

    def _sync(self) -> None:
        waiting = tuple(self._unsynced)
        for content in waiting:
            self._durable.put(content)  # for content that is stored already, this is a sync
        del self._unsynced[: len(waiting)]
