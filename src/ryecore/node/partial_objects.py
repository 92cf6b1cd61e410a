"""The beginnings of a caller's objects, which pieces continue until an object is whole.

Source: docs/design/remote.md#objects-and-pieces.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

from ryecore.caches import BoundedDict
from ryecore.node.files import cost_of, write_at
from ryecore.node.quota import Quota

__all__ = ["PartialObjects", "cost_of_part"]

_CHUNK_BYTES: Final = 1024 * 1024
_MAX_HASHED: Final = 64
_TEMPORARY: Final = "new."


class PartialObjects:
    """The partial objects in a folder. Its caller lets nobody else write there.

    Args:
        folder: The folder, which is there.
        quota: Counts what is written.
    """

    def __init__(self, folder: Path, quota: Quota) -> None:
        self.folder = folder
        self._quota = quota
        for left in folder.glob(f"{_TEMPORARY}*"):  # of a node that died
            left.unlink(missing_ok=True)
        # The hash of each partial object so far, which would else be read again for each piece.
        self._hashes: BoundedDict[str, tuple[int, hashlib._Hash]] = BoundedDict(_MAX_HASHED)

    def forget(self, sha256: str) -> None:
        """Forget the hash of an object that is about to be removed."""
        self._hashes.pop(sha256, None)

    def append(self, sha256: str, have: int, size: int, content: memoryview | bytes) -> int | None:
        """Append to a partial object. Returns its length; None once it is whole."""
        path = self.folder / sha256
        digest = self._hash_so_far(sha256, have)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                write_at(descriptor, content, have)
            except OSError:
                self._hashes.pop(sha256, None)
                os.ftruncate(descriptor, have)
                self._quota.charge(cost_of_part(have) - cost_of(have + len(content)))
                raise
            digest.update(content)
            have += len(content)
            self._hashes[sha256] = (have, digest)
        finally:
            os.close(descriptor)
        if have < size:
            return have
        self._hashes.pop(sha256, None)
        if digest.hexdigest() == sha256:
            return None
        path.unlink()
        self._quota.charge(-cost_of(size))
        return 0

    def _hash_so_far(self, sha256: str, have: int) -> "hashlib._Hash":
        known = self._hashes.get(sha256)
        if known is not None and known[0] == have:
            return known[1]
        digest = hashlib.sha256()
        if have:
            with (self.folder / sha256).open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
        return digest

    def length_of(self, sha256: str, size: int) -> int:
        """Return the length of the beginning of an object that is here."""
        path = self.folder / sha256
        try:
            have = os.stat(path).st_size
        except FileNotFoundError:
            return 0
        if have < size:
            return have
        path.unlink()  # the node died before it could be kept
        self._quota.charge(-cost_of(have))
        return 0

    def new_path(self) -> Path:
        """Return the path for a file that isn't known by its hash yet."""
        return self.folder / f"{_TEMPORARY}{os.urandom(8).hex()}"


def cost_of_part(have_bytes: int) -> int:
    """Return what the beginning of an object takes; nothing where there is none."""
    return cost_of(have_bytes) if have_bytes else 0
