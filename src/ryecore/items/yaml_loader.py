"""A loader of YAML that checks bounds on the events before it builds any value.

The C loader goes down a document by recursion, so one that is nested deeply enough would end the
whole process; and a few lines of aliases can stand for more nodes than there is memory.
"""

import re
from copy import deepcopy
from functools import lru_cache
from typing import Final, cast

from attrs import define
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    Event,
    ScalarEvent,
)
from typing_extensions import override

__all__ = ["BrokenYaml", "load_yaml"]

_MAX_REMEMBERED_CHARS: Final = 16 * 1024
_MAX_ALIASED_NODES: Final = 100_000
# Each level of block style takes a column of indentation, or a mark, at the start of a line; where
# lines start is not asked, because YAML knows more line ends than `re` does.
_INDENTATION: Final = re.compile(r"[ \t?:-]{16,}")


class _SafeYaml(YAML):
    """A parser of plain values, which doesn't search its package's folders for plug-ins."""

    def __init__(self) -> None:
        super().__init__(typ="safe")

    @override
    def official_plug_ins(self) -> list[str]:
        return []


@define
class _Node:
    """A collection that is still open: its anchor, and how much stands in it so far."""

    anchor: str | None
    size: int = 1
    height: int = 1

    def take(self, size: int, height: int) -> None:
        self.size += size
        self.height = max(self.height, height + 1)


class BrokenYaml(ValueError):
    """A document that is broken or out of bounds, and the line, counted from 1."""

    def __init__(self, problem: str, line: int | None) -> None:
        super().__init__(problem)
        self.line = line


def load_yaml(text: str, max_depth: int) -> object:
    """Load a document of at most so many levels, its aliases written out.

    Of a short one that was loaded before, a copy is returned.
    """
    if len(text) > _MAX_REMEMBERED_CHARS:
        return _load(text, max_depth)
    return deepcopy(_remembered(text, max_depth))


@lru_cache(maxsize=64)
def _remembered(text: str, max_depth: int) -> object:
    return _load(text, max_depth)


def _load(text: str, max_depth: int) -> object:
    try:
        _check_bounds(text, max_depth)
        return cast("object", _SafeYaml().load(text))
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line = mark.line + 1 if mark is not None else None
        raise BrokenYaml(problem.problem or str(problem), line) from None
    except YAMLError as problem:
        raise BrokenYaml(str(problem), None) from None
    except (ValueError, LookupError, TypeError, AttributeError) as problem:
        # What ruamel's constructors raise for a value that can't be, such as `!!int x`.
        raise BrokenYaml(f"it has an impossible value: {problem}", None) from None


def _check_bounds(text: str, max_depth: int) -> None:
    """Check that a document, its aliases written out, stays within bounds.

    A MarkedYAMLError means that it is nested too deeply, its aliases stand for too much or for what
    they stand in, or it is broken.
    """
    if _is_plainly_within(text, max_depth):
        return
    open_nodes = [_Node(None)]
    anchored: dict[str, tuple[int, int]] = {}
    aliased = 0
    for event in _SafeYaml().parse(text):
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
        if len(open_nodes) + open_nodes[-1].height - 2 > max_depth + 1:
            raise _out_of_bounds("it is nested too deeply", event)


def _is_plainly_within(text: str, max_depth: int) -> bool:
    """Return whether a look at the text is enough: no anchors, and too few marks to nest deeply."""
    return (
        "&" not in text
        and text.count("[") + text.count("{") < max_depth // 2
        and all(len(found[0]) < max_depth // 2 for found in _INDENTATION.finditer(text))
    )


def _out_of_bounds(problem: str, event: Event) -> MarkedYAMLError:
    return MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
