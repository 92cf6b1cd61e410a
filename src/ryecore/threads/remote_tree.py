"""The tree of a run on a node, as the node shows it: kept beside the thread, and drawn below it.

Source: docs/design/remote.md#requests; decision 74.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from ryecore.convert.money import read_usd
from ryecore.display.sanitize import to_one_line
from ryecore.errors import RyeError
from ryecore.items.refs import ItemRef
from ryecore.policy.limits import Limits, read_limits
from ryecore.state.model import Status, check_status
from ryecore.strict_json import read_json
from ryecore.threads.tree_node import TreeNode

if TYPE_CHECKING:
    from ryecore.state.node_files import NodeFiles

__all__ = ["keep_tree", "read_tree", "with_remote_tree"]

_FILE: Final = "tree.json"
_MAX_BYTES: Final = 1024 * 1024
_MAX_NODES: Final = 2_000
_MAX_ID: Final = 255
_MAX_NOTE: Final = 300
_MOST: Final = 2**53


def keep_tree(files: "NodeFiles", tree: Mapping[str, Any]) -> bool:
    """Keep the tree that a node has sent; return whether it was written."""
    content = json.dumps(tree).encode()
    if len(content) > _MAX_BYTES:
        return False
    files.write(_FILE, content)
    return True


def with_remote_tree(node: TreeNode, files: "NodeFiles") -> TreeNode:
    """Return a thread with what its node says of it: its own use, and the threads below it.

    What the node sent is untrusted: it is drawn, and decides nothing.
    """
    found = read_tree(files, ended=node.status if node.ended else None)
    if found is None:
        return node
    return evolve(
        node,
        turns=found.turns,
        tokens=found.tokens,
        spend_microcents=found.spend_microcents,
        model=node.model or found.model,
        note=node.note or ("" if node.ended else found.note),
        children=(*node.children, *found.children),
    )


def read_tree(files: "NodeFiles", *, ended: Status | None = None) -> TreeNode | None:
    """Return the tree that a node has sent last; None where there is none.

    Args:
        files: The run's files of the node.
        ended: The status of threads that run in it, where the whole run has ended.
    """
    content = files.read(_FILE, _MAX_BYTES)
    if content is None:
        return None
    try:
        return _Reader(ended).read(read_json(content.decode()))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None  # not a tree


class _Reader:
    """Reads a tree with bounds.

    Args:
        ended: The status of threads that run, where the whole run has ended.
    """

    def __init__(self, ended: Status | None) -> None:
        self._ended: Status | None = ended
        self._left = _MAX_NODES

    def read(self, document: Any) -> TreeNode:
        """Read a thread and those below it; a ValueError where it isn't one."""
        self._left -= 1
        if self._left < 0:
            raise ValueError("too many threads")
        status: Status = check_status(document["status"])
        started_at, ended_at = _number(document["started_at"]), document["ended_at"]
        if status in ("created", "running") and self._ended is not None:
            status, ended_at = self._ended, started_at
        limits = Limits()
        with suppress(ValueError):
            limits = read_limits(document["limits"])
        model = document["model"]
        return TreeNode(
            thread_id=_id(document["thread_id"]),
            item_id=_item(document["item_id"]),
            status=status,
            turns=int(_number(document["turns"])),
            tokens=int(_number(document["tokens"])),
            spend_microcents=int(_number(read_usd(document["spend"]))),
            limits=limits,
            started_at=started_at,
            ended_at=None if ended_at is None else _number(ended_at),
            children=tuple(self.read(one) for one in document["children"]),
            model=None if model is None else to_one_line(str(model)[:_MAX_NOTE]),
            note=to_one_line(str(document["note"])[:_MAX_NOTE]),
        )


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise ValueError("not a number")
    return value


def _id(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAX_ID or to_one_line(value) != value:
        raise ValueError("not an id")
    return value


def _item(value: Any) -> str:
    try:
        return str(ItemRef.parse(value))
    except RyeError:
        raise ValueError("not an item") from None
