"""Bounds on a YAML document, checked on its events before anything is built from it.

The C loader goes down a document by recursion, so one that is nested deeply enough would end the
whole process; and a few lines of aliases can stand for more nodes than there is memory.
"""

import re
from typing import Final

from attrs import define
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    Event,
    ScalarEvent,
)

__all__ = ["MAX_DEPTH", "check_yaml_bounds"]

MAX_DEPTH: Final = 64
_MAX_ALIASED_NODES: Final = 100_000
# Each level of block style takes a column of indentation, or a mark, at the start of a line.
_DEEP_LINE: Final = re.compile(rf"^[ \t?:-]{{{MAX_DEPTH // 2},}}", re.MULTILINE)


@define
class _Node:
    """A collection that is still open: its anchor, and how much stands in it so far."""

    anchor: str | None
    size: int = 1
    height: int = 1

    def take(self, size: int, height: int) -> None:
        self.size += size
        self.height = max(self.height, height + 1)


def check_yaml_bounds(text: str) -> None:
    """Check that a document, its aliases written out, stays within bounds.

    Args:
        text: The document.

    Raises:
        MarkedYAMLError: It is nested too deeply, its aliases stand for too much or for what they
            stand in, or it is broken.
    """
    if _is_plainly_within(text):
        return
    open_nodes = [_Node(None)]
    anchored: dict[str, tuple[int, int]] = {}
    aliased = 0
    for event in YAML(typ="safe", plug_ins=[]).parse(text):
        if isinstance(event, CollectionStartEvent):
            open_nodes.append(_Node(event.anchor))
        elif isinstance(event, CollectionEndEvent):
            done = open_nodes.pop()
            open_nodes[-1].take(done.size, done.height)
            if done.anchor is not None:
                anchored[done.anchor] = (done.size, done.height)
        elif isinstance(event, ScalarEvent):
            open_nodes[-1].take(1, 1)
            if event.anchor is not None:
                anchored[event.anchor] = (1, 1)
        elif isinstance(event, AliasEvent):
            if any(node.anchor == event.anchor for node in open_nodes):
                raise _out_of_bounds(f"the alias *{event.anchor} stands inside itself", event)
            # An alias of nothing is left to the loader, which says so.
            size, height = anchored.get(event.anchor, (1, 1))
            aliased += size
            open_nodes[-1].take(size, height)
            if aliased > _MAX_ALIASED_NODES:
                raise _out_of_bounds("its aliases stand for too many nodes", event)
        if len(open_nodes) + open_nodes[-1].height - 2 > MAX_DEPTH + 1:
            raise _out_of_bounds("it is nested too deeply", event)


def _is_plainly_within(text: str) -> bool:
    """Whether a look at the text is enough: no anchors, and too few marks to nest deeply."""
    return (
        "&" not in text
        and text.count("[") + text.count("{") < MAX_DEPTH // 2
        and _DEEP_LINE.search(text) is None
    )


def _out_of_bounds(problem: str, event: Event) -> MarkedYAMLError:
    return MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
