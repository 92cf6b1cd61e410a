"""Item ids, canonical refs (`kind:id`), and the ids that are reserved for exports of threads.

Exports are records, never items. Source: decisions 5 and 36.
"""

import re
from typing import Final, Self

from ryecore.convert.lines import quoted
from ryecore.errors import InvalidItemId
from ryecore.frozen import frozen

__all__ = [
    "EXPORT_FOLDER",
    "KIND_FOLDERS",
    "ORCHESTRATOR",
    "RECORD_LINE",
    "ItemRef",
    "check_item_id",
    "is_export",
]

KIND_FOLDERS: Final = {
    "tool": "tools",
    "directive": "directives",
    "knowledge": "knowledge",
    "config": "config",
}
"""Each kind of item, and the folder below `.ai/` that holds it."""

ORCHESTRATOR: Final = "rye/agent/threads/orchestrator"
"""The system bundle's tool that manages threads, which ryecore serves itself."""

_SEGMENT: Final = r"[A-Za-z0-9_][A-Za-z0-9_-]*"
_ITEM_ID: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*\Z")
_MAX_ID_LENGTH: Final = 512
_MAX_SHOWN: Final = 80


def check_item_id(item_id: str) -> str:
    """Check that an id may name a file below a kind's folder.

    Segments hold letters, digits, `_` and `-`, so an id can't leave its folder, hide a file,
    or be two different capabilities once its slashes are dots.
    """
    if len(item_id) <= _MAX_ID_LENGTH and _ITEM_ID.match(item_id):
        return item_id
    shown = repr(item_id if len(item_id) <= _MAX_SHOWN else item_id[: _MAX_SHOWN - 3] + "...")
    raise InvalidItemId(
        f"{shown} is not an item id.",
        next_step=(
            "An id is the path below the kind's folder without its extension, like "
            "'acme/csv/summarise': segments of letters, digits, '_' and '-', joined by '/'."
        ),
        given=item_id,
    )


def shown_id(item_id: str) -> str:
    """Return an id for an example in an error; `acme/name` where it isn't an id itself."""
    return item_id if len(item_id) <= _MAX_SHOWN and _ITEM_ID.match(item_id) else "acme/name"


@frozen
class ItemRef:
    """The reference to an item: its kind and its id.

    Attributes:
        kind: tool, directive, knowledge or config.
        id: The slash path below the kind's folder, without extension.
    """

    kind: str
    id: str

    @classmethod
    def parse(cls, text: str, default_kind: str | None = None) -> Self:
        """Read `kind:id`, or a bare id where a default kind is given.

        Args:
            text: A canonical ref, such as `tool:rye/bash`.
            default_kind: The kind of a bare id.

        Returns:
            The ref.

        Raises:
            InvalidItemId: The kind is unknown or missing, or the id has no valid form.
        """
        kind, colon, item_id = text.partition(":")
        if not colon:
            if default_kind is None:
                raise InvalidItemId(
                    f"{quoted(text)} doesn't say what kind of item it names.",
                    next_step=f"Write the kind before it, like tool:{shown_id(text)}. The kinds "
                    f"are {', '.join(KIND_FOLDERS)}.",
                    given=text,
                )
            kind, item_id = default_kind, text
        if kind not in KIND_FOLDERS:
            hint = f"A graph is a tool: write tool:{shown_id(item_id)}. " if kind == "graph" else ""
            raise InvalidItemId(
                f"{quoted(kind)} is not a kind of item.",
                next_step=f"{hint}The kinds are {', '.join(KIND_FOLDERS)}.",
                given=text,
            )
        return cls(kind, check_item_id(item_id))

    @classmethod
    def of_file(cls, kind: str, relative: str) -> Self:
        """Return the ref of a file, from its slash path below the kind's folder.

        The id of a library, such as `acme/lib.tables`, can't always be executed.
        """
        return cls(kind, relative.rpartition(".")[0] or relative)

    @property
    def folder(self) -> str:
        """The name of the folder below `.ai/` that holds this kind."""
        return KIND_FOLDERS[self.kind]

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"


EXPORT_FOLDER: Final = "agent/threads"
"""The folder of exports, below a project's `.ai/knowledge`."""

RECORD_LINE: Final = b"<!-- rye-record:"
"""The beginning of a document that a run key has signed as a record."""


def is_export(kind: str, name: str) -> bool:
    """Return whether an item's id or path belongs to the folder of exports."""
    return kind == "knowledge" and name.startswith(f"{EXPORT_FOLDER}/")
