"""Chain elements made by hand, for rules that look at declarations alone."""

from pathlib import Path
from typing import Literal

from ryecore.chain.builder import EXECUTE_ID, PRIMITIVE_SPECS
from ryecore.chain.model import Chain, ChainElement, ValidChain
from ryecore.chain.spec import read_spec
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import ItemSource, Space
from ryecore.items.verification import VerifiedItem

PRIMITIVE = ChainElement(EXECUTE_ID, "built-in", None, PRIMITIVE_SPECS[EXECUTE_ID])


def element(
    item_id: str,
    space: Literal["project", "user", "system"] = "project",
    *,
    extension: str = ".yaml",
    **declared: object,
) -> ChainElement:
    """An element that declares these keys."""
    place = Space(space, Path("/somewhere", space, ".ai"))
    path = place.folder("tool") / f"{item_id}{extension}"
    source = ItemSource(ItemRef("tool", item_id), path, place, f"{item_id}{extension}")
    item = VerifiedItem(source, b"", "0" * 64, "f" * 16)
    return ChainElement(item_id, place.label, item, read_spec(declared, path))


def chain(*elements: ChainElement) -> Chain:
    """A chain that ends in the primitive."""
    return Chain((*elements, PRIMITIVE))


def valid(*elements: ChainElement) -> ValidChain:
    """The same, as one whose neighbours fit."""
    return ValidChain((*elements, PRIMITIVE))
