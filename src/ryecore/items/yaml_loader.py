"""A loader of YAML that checks bounds on the events before it builds any value.

The C loader goes down a document by recursion, so one that is nested deeply enough would end the
whole process; and a few lines of aliases can stand for more nodes than there is memory.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any, Final, cast

from attrs import define
from ruamel.yaml.cyaml import CSafeLoader
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    Event,
    ScalarEvent,
)
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
from ruamel.yaml.resolver import Resolver
from ruamel.yaml.tag import Tag

__all__ = ["BrokenYaml", "load_yaml"]

_MAX_REMEMBERED_CHARS: Final = 16 * 1024
_PLAIN: Final = frozenset({str, bool, int, float, type(None)})
_MAX_ALIASED_NODES: Final = 100_000
# Each level of block style takes a column of indentation, or a mark, at the start of a line; where
# lines start is not asked, because YAML knows more line ends than Python does.
_INDENTATION: Final = bytes.maketrans(b"\t?:-", b"    ")


_IMPLICIT: Final[Mapping[str, tuple[tuple[Tag, re.Pattern[str]], ...]]] = {
    first: tuple((Tag(suffix=tag), pattern) for tag, pattern in resolvers)
    for first, resolvers in Resolver.yaml_implicit_resolvers.items()
}
"""The types that YAML 1.2 gives to plain scalars, by their first character."""


class _Loader(CSafeLoader):
    """The C loader of plain values, of YAML 1.2.

    ruamel's own way to it, `YAML(typ="safe")`, makes a class for each document and looks up the
    version of YAML for each scalar, which takes 2.4 times as long.
    """

    processing_version = (1, 2)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.allow_duplicate_keys = False

    def resolve(self, kind: type[Node], value: str, implicit: tuple[bool, bool]) -> Tag:
        if kind is not ScalarNode:
            return self.DEFAULT_MAPPING_TAG if kind is MappingNode else self.DEFAULT_SEQUENCE_TAG
        if implicit[0]:
            for tag, pattern in _IMPLICIT.get(value[:1], ()):
                if pattern.match(value):
                    return tag
        return self.DEFAULT_SCALAR_TAG

    def construct_object(self, node: Node, deep: bool = False) -> object:
        """Construct plain values at once; others, and mappings with other keys, as ruamel does."""
        tag = node.ctag
        if tag is self.DEFAULT_SCALAR_TAG:
            return node.value
        if tag is self.DEFAULT_SEQUENCE_TAG:
            return [self.construct_object(one) for one in node.value]
        if tag is self.DEFAULT_MAPPING_TAG:
            text = self.DEFAULT_SCALAR_TAG
            if len({key.value for key, _ in node.value if key.ctag is text}) == len(node.value):
                return {key.value: self.construct_object(one) for key, one in node.value}
        return super().construct_object(node, deep)


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
    return _copied(_remembered(text, max_depth))


@lru_cache(maxsize=64)
def _remembered(text: str, max_depth: int) -> object:
    return _load(text, max_depth)


def _copied(value: Any) -> Any:
    """Return a copy: `deepcopy`, with a short way for what documents nearly always hold."""
    kind = type(value)
    if kind is dict:
        return {key: _copied(one) for key, one in value.items()}
    if kind is list:
        return [_copied(one) for one in value]
    return value if kind in _PLAIN else deepcopy(value)


def _load(text: str, max_depth: int) -> object:
    try:
        _check_bounds(text, max_depth)
        loader = _Loader(text)
        try:
            return cast("object", loader.get_single_data())
        finally:
            loader.dispose()
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
    for event in _events(text):
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


def _events(text: str) -> Iterator[Event]:
    loader = _Loader(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


def _is_plainly_within(text: str, max_depth: int) -> bool:
    """Return whether a look at the text is enough: no anchors, and too few marks to nest deeply."""
    return (
        "&" not in text
        and text.count("[") + text.count("{") < max_depth // 2
        and b" " * (max_depth // 2) not in text.encode().translate(_INDENTATION)
    )


def _out_of_bounds(problem: str, event: Event) -> MarkedYAMLError:
    return MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
