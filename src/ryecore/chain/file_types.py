"""The file types that signed runtimes add to the fixed ones.

Source: decision 2.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ryecore.chain.spec import read_spec
from ryecore.chain.trace import Remembered, Trace
from ryecore.errors import RyeError
from ryecore.items.metadata import parse_metadata
from ryecore.items.refs import ItemRef
from ryecore.items.signature import CommentForm
from ryecore.items.spaces import EXTENSIONS, ItemSource, Space, Spaces
from ryecore.items.trust import TrustStore
from ryecore.items.verification import Verifier
from ryecore.lillux.digests import TreeFilter, stat_tree
from ryecore.lillux.witness import Evidence, TreeStat

__all__ = ["RUNTIMES_FOLDER", "FileTypes"]

RUNTIMES_FOLDER: Final = "rye/core/runtimes"

_RUNTIMES: Final = TreeFilter(extensions=(".yaml",))


class FileTypes:
    """Reads `file_types` of every signed runtime, when an extension is not among the fixed ones.

    What was read is remembered as long as all of it stands as it was, keys included.

    Args:
        spaces: Where runtimes are looked for.
        trust: Which keys count. A runtime that doesn't verify adds nothing.
    """

    def __init__(self, spaces: Spaces, trust: TrustStore) -> None:
        self._spaces = spaces
        self._verifier = Verifier(trust)
        self._remembered = Remembered()

    def comment_forms(self) -> Mapping[str, CommentForm]:
        """Return the comment form of each added extension; the first space that names one wins."""
        return self._remembered.recall("", Trace(), self._read)

    def _read(self, _: Trace, evidence: Evidence) -> Mapping[str, CommentForm]:
        found: dict[str, CommentForm] = {}
        for space in self._spaces:
            folder = space.folder("tool")
            _see(folder / RUNTIMES_FOLDER, evidence)
            for path in sorted((folder / RUNTIMES_FOLDER).rglob("*.yaml")):
                for extension, token in self._declared(path, folder, space, evidence).items():
                    if extension not in EXTENSIONS["tool"]:
                        found.setdefault(extension, CommentForm.of(token))
        return found

    def extensions(self) -> tuple[str, ...]:
        """Return the added extensions, sorted."""
        return tuple(sorted(self.comment_forms()))

    def _declared(
        self, path: Path, folder: Path, space: Space, evidence: Evidence
    ) -> Mapping[str, str]:
        relative = path.relative_to(folder).as_posix()
        source = ItemSource(ItemRef("tool", relative.rpartition(".")[0]), path, space, relative)
        try:
            item = self._verifier.verify(source, evidence)
            return read_spec(parse_metadata(item.content, path), path).file_types
        except RyeError:
            evidence.never_remember()  # why it doesn't count may change unseen
            return {}


def _see(folder: Path, evidence: Evidence) -> None:
    """Have a file that comes or goes noticed. Seen before the files are, so that none is missed."""
    try:
        evidence.tree(TreeStat(str(folder), _RUNTIMES, stat_tree(folder, _RUNTIMES)))
    except FileNotFoundError:
        evidence.absent(str(folder))
    except OSError:
        evidence.never_remember()
