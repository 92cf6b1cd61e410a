"""The elements of a chain, each with what vouches for it."""

from pathlib import Path

from ryecore.chain.spec import ElementSpec
from ryecore.frozen import frozen
from ryecore.items.verification import VerifiedItem

__all__ = ["ChainElement", "Link"]


@frozen
class ChainElement:
    """One element of a chain: a tool, a runtime, or the primitive at its end.

    Attributes:
        item_id: Its id.
        space: The label of the space it was found in; `built-in` for a primitive.
        item: The verified item; None for a primitive, which needs no file.
        spec: What it declares.
    """

    item_id: str
    space: str
    item: VerifiedItem | None
    spec: ElementSpec

    @property
    def path(self) -> Path | None:
        """The author's own file."""
        return self.item.source.path if self.item else None

    @property
    def integrity(self) -> str:
        """The verified content hash, `unverified` in dev mode, or `built-in`."""
        return self.item.integrity if self.item else "built-in"

    @property
    def precedence(self) -> int:
        """3 for project, 2 for user, 1 for system and primitives."""
        return self.item.source.space.precedence if self.item else 1

    def to_dict(self) -> dict[str, object]:
        """Return the element as `chain_elements` of a result shows it."""
        return {
            "item_id": self.item_id,
            "path": str(self.path) if self.path else None,
            "space": self.space,
            "tool_type": self.spec.tool_type,
            "executor_id": self.spec.executor_id,
            "integrity": self.integrity,
        }

    def __repr__(self) -> str:
        return f"ChainElement({self.item_id!r}, {self.space}, {self.integrity[:12]})"


@frozen
class Link:
    """An item that a runtime is given by its path: found, verified and sealed as the tool is.

    `placeholder` stands for its path in the config of the runtime, whose id is `taken_by`; the
    element `named_by` names it in its signed config.
    """

    placeholder: str
    named_by: str
    taken_by: str
    element: ChainElement

    def to_dict(self) -> dict[str, object]:
        """Return the link as `linked_items` of a result shows it."""
        return {"placeholder": self.placeholder, **self.element.to_dict()}
