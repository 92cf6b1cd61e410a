"""The file types that signed runtimes add to the fixed ones.

Source: decision 2.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ryecore.chain.spec import read_spec
from ryecore.errors import RyeError
from ryecore.items.metadata import parse_metadata
from ryecore.items.refs import ItemRef
from ryecore.items.signature import CommentForm
from ryecore.items.spaces import EXTENSIONS, ItemSource, Space, Spaces
from ryecore.items.trust import TrustStore
from ryecore.items.verification import Verifier

__all__ = ["RUNTIMES_FOLDER", "FileTypes"]

RUNTIMES_FOLDER: Final = "rye/core/runtimes"


class FileTypes:
    """Reads `file_types` of every signed runtime, when an extension is not among the fixed ones.

    Args:
        spaces: Where runtimes are looked for.
        trust: Which keys count. A runtime that doesn't verify adds nothing.
    """

    def __init__(self, spaces: Spaces, trust: TrustStore) -> None:
        self._spaces = spaces
        self._verifier = Verifier(trust)

    def comment_forms(self) -> Mapping[str, CommentForm]:
        """The comment form of each added extension; the first space that names one wins."""
        found: dict[str, CommentForm] = {}
        for space in self._spaces:
            folder = space.folder("tool")
            for path in sorted((folder / RUNTIMES_FOLDER).rglob("*.yaml")):
                for extension, token in self._declared(path, folder, space).items():
                    if extension not in EXTENSIONS["tool"]:
                        found.setdefault(extension, CommentForm.of(token))
        return found

    def extensions(self) -> tuple[str, ...]:
        """The added extensions, sorted."""
        return tuple(sorted(self.comment_forms()))

    def _declared(self, path: Path, folder: Path, space: Space) -> Mapping[str, str]:
        relative = path.relative_to(folder).as_posix()
        source = ItemSource(ItemRef("tool", relative.rpartition(".")[0]), path, space, relative)
        try:
            item = self._verifier.verify(source)
            return read_spec(parse_metadata(item.content, path), path).file_types
        except RyeError:
            return {}
