"""The palette of a thread: built-in tools, signed tools and the host's functions.

The thread's capabilities decide which tools the model sees. A tool that doesn't fit can still be
executed with rye_execute: the palette is a convenience, and each call is checked anew.

Source: docs/design/threads.md#harness; decision 41.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from ryecore.caches import BoundedDict
from ryecore.errors import IntegrityError, MissingExecutorId, RyeError
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef, check_item_id
from ryecore.llm.token_estimates import tool_tokens
from ryecore.policy import allows
from ryecore.policy.permissions import Action, holds_any
from ryecore.runs.host import guarded
from ryecore.runs.ports import Dispatcher
from ryecore.threads.calls.guard import READ_ARTIFACT
from ryecore.threads.calls.item_tools import BUILT_IN_NAMES, item_tool
from ryecore.threads.calls.returning import RETURN_TOOL
from ryecore.tools.definition import ToolDef
from ryecore.tools.failures import shown
from ryecore.tools.items import ItemRunner, shape_of
from ryecore.tools.registry import ToolRegistry

__all__ = [
    "TOKEN_BUDGET",
    "Palette",
    "PaletteBuilder",
    "names_of",
]

TOKEN_BUDGET: Final = 2_000
"""The most tokens that the signed tools may take, roughly."""

_WITHOUT_RESULTS: Final = (READ_ARTIFACT, RETURN_TOOL)
_TOOLS: Final = "rye.execute.tool."
_RUNTIME: Final = "runtime"
_CATEGORY: Final = re.compile(r"[A-Za-z0-9_-]+")
_MAX_NAME: Final = 64
_DIGEST_CHARS: Final = 16
_LEAST_TOKENS: Final = 20
_MAX_LOOKED_AT: Final = 100
_MAX_LEFT_OUT: Final = 100
_MAX_REMEMBERED: Final = 4_096
_MAX_GRANTS: Final = 256

_GrantKey: TypeAlias = tuple[tuple[str, ...], tuple[ToolDef, ...], tuple[ToolDef, ...]]
"""Capabilities, the host's functions, and a thread's own tools."""


@frozen
class Palette:
    """The tools that a thread's model can call, in its order, and why others are left out.

    The host's functions run in this process, and only they.
    """

    registry: ToolRegistry
    tools: tuple[ToolDef, ...]
    left_out: tuple[str, ...]
    functions: frozenset[str]


@frozen
class _Kept:
    """A tool that was made from an item, with the item's path and digest."""

    ref: ItemRef
    integrity: str
    path: Path | None
    tool: ToolDef
    tokens: int


@frozen(eq=False)
class _Granted:
    """What capabilities grant, whichever signed tools there are.

    Attributes:
        built_in: The tools for actions on items.
        hosts: The host's functions.
        own: The thread's own tools.
        names: The names of all of them, and of the other built-in tools.
        left_out: Why functions of the host are left out.
        functions: The names of the host's functions.
        exact: The ids of signed tools that are granted by name.
        patterns: The capabilities for signed tools with a wildcard.
    """

    built_in: tuple[ToolDef, ...]
    hosts: tuple[ToolDef, ...]
    own: tuple[ToolDef, ...]
    names: frozenset[str]
    left_out: tuple[str, ...]
    functions: frozenset[str]
    exact: tuple[str, ...]
    patterns: tuple[str, ...]


@frozen
class _Wanted:
    """The signed tools that capabilities grant, of those that are `listed` for each wildcard.

    Attributes:
        items: Their ids, and whether each is granted by name: these first.
        names: Their names as tools, by id.
    """

    listed: tuple[tuple[str, ...], ...]
    items: tuple[tuple[str, bool], ...]
    names: Mapping[str, str]


class PaletteBuilder:
    """The builder of the palettes of one open Rye's threads.

    Between threads it caches tools by the digest of their verified file, and what capabilities
    grant of the tools that come from no file. The list of items and the verification of their
    chains are made anew for each palette.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._kept: BoundedDict[tuple[str, str], _Kept] = BoundedDict(_MAX_REMEMBERED)
        self._host: BoundedDict[ToolDef, ToolDef] = BoundedDict(_MAX_REMEMBERED)
        self._granted: BoundedDict[_GrantKey, _Granted] = BoundedDict(_MAX_GRANTS)
        self._wanted: BoundedDict[_Granted, _Wanted] = BoundedDict(_MAX_GRANTS)
        self._built_in: dict[Action, ToolDef] = {
            action: item_tool(action, dispatcher) for action in BUILT_IN_NAMES
        }

    async def build(
        self,
        capabilities: Sequence[str],
        host_tools: Iterable[ToolDef] = (),
        extra: Iterable[ToolDef] = (),
        *,
        token_budget: int = TOKEN_BUDGET,
    ) -> Palette:
        """Build the palette of one thread. A tool that can't be offered is left out.

        Args:
            host_tools: The host's functions; those that the capabilities allow are shown.
            extra: The thread's own tools, such as `rye_directive_return`. They are always shown,
                `read_artifact` only beside others.
            token_budget: The most tokens that the signed tools may take, roughly.
        """
        key = (tuple(capabilities), tuple(host_tools), tuple(extra))  # tools by identity
        granted = self._granted.get(key)
        if granted is None:
            granted = self._granted[key] = self._grant(*key)
        items: list[ToolDef] = []
        left_out = list(granted.left_out)
        wanted = self._find(granted)
        if wanted.items:
            items, missing = await self._items(wanted, token_budget)
            left_out += missing
        tools = (*granted.built_in, *items, *granted.hosts, *granted.own)
        if all(tool.name in _WITHOUT_RESULTS for tool in tools):
            tools = tuple(tool for tool in tools if tool.name != READ_ARTIFACT)
        if len(left_out) > _MAX_LEFT_OUT:
            more = len(left_out) - _MAX_LEFT_OUT
            left_out = [*left_out[:_MAX_LEFT_OUT], f"and {more} more"]
        return Palette(ToolRegistry(tools), tools, tuple(left_out), granted.functions)

    def _grant(
        self,
        capabilities: tuple[str, ...],
        host_tools: tuple[ToolDef, ...],
        own: tuple[ToolDef, ...],
    ) -> _Granted:
        mine = tuple(
            self._built_in[action] for action in BUILT_IN_NAMES if holds_any(capabilities, action)
        )
        taken = {tool.name for tool in (*self._built_in.values(), *own)}
        hosts, left_out = self._allowed(capabilities, host_tools, taken)
        taken.update(tool.name for tool in hosts)
        exact, patterns = _of_tools(capabilities, {tool.capability for tool in hosts})
        return _Granted(
            mine,
            tuple(hosts),
            own,
            frozenset(taken),
            tuple(left_out),
            frozenset(tool.name for tool in hosts),
            exact,
            patterns,
        )

    def _find(self, granted: _Granted) -> _Wanted:
        """Find the signed tools that are granted; which there are is looked up each time."""
        listed = tuple(map(self._dispatcher.tool_ids, map(_category_of, granted.patterns)))
        known = self._wanted.get(granted)
        if known is not None and known.listed == listed:
            return known
        found = {
            item_id
            for pattern, ids in zip(granted.patterns, listed, strict=True)
            for item_id in ids
            if allows((pattern,), f"{_TOOLS}{item_id.replace('/', '.')}")
        }
        ids = (*granted.exact, *sorted(found.difference(granted.exact)))
        exact = len(granted.exact)
        items = tuple((item_id, number < exact) for number, item_id in enumerate(ids))
        wanted = self._wanted[granted] = _Wanted(listed, items, names_of(ids, granted.names))
        return wanted

    def _allowed(
        self, capabilities: Sequence[str], host_tools: Iterable[ToolDef], taken: set[str]
    ) -> tuple[list[ToolDef], list[str]]:
        """Return the host's functions that the thread may call, and why others are left out."""
        tools: dict[str, ToolDef] = {}
        left_out: list[str] = []
        for given in host_tools:
            if given.name in taken:
                left_out.append(f"{given.name}: a built-in tool has its name")
                continue
            tool = given
            if tool.capability is None:
                tool = self._host.get(given) or self._as_host_tool(given)
            if tool.capability is not None and allows(capabilities, tool.capability):
                tools[tool.name] = tool
        return list(tools.values()), left_out

    def _as_host_tool(self, given: ToolDef) -> ToolDef:
        tool = guarded(given)
        self._host[given] = tool
        return tool

    async def _items(self, wanted: _Wanted, token_budget: int) -> tuple[list[ToolDef], list[str]]:
        tools: list[ToolDef] = []
        left_out: list[str] = []
        used: set[str] = set()
        left = token_budget
        for number, (item_id, is_exact) in enumerate(wanted.items):
            too_much = f"tool:{item_id}: over the token budget; rye_execute runs it"
            if not is_exact and (left < _LEAST_TOKENS or number >= _MAX_LOOKED_AT):
                left_out.append(too_much)
                continue
            try:
                kept = await self._tool(item_id, wanted.names[item_id], is_exact=is_exact)
            except RyeError as error:
                left_out.append(f"tool:{item_id}: {shown(error.message)}")
                continue
            except ValueError as problem:
                left_out.append(f"tool:{item_id}: {shown(str(problem))}")
                continue
            if kept is None:
                continue
            if kept.tokens > left:
                left_out.append(too_much)
                continue
            if kept.tool.name in used:  # a deliberate collision of two digests
                left_out.append(f"tool:{item_id}: another tool has its name")
                continue
            used.add(kept.tool.name)
            left -= kept.tokens
            tools.append(kept.tool)
        return tools, left_out

    async def _tool(self, item_id: str, name: str, *, is_exact: bool) -> _Kept | None:
        """Return the tool of an item; None for a library that a wildcard matched."""
        kept = self._kept.get((item_id, name))
        ref = ItemRef("tool", check_item_id(item_id)) if kept is None else kept.ref
        try:
            chain = await self._dispatcher.chain(ref)
        except MissingExecutorId:
            if is_exact:
                raise
            return None  # a library beside tools
        head = chain.head
        if not is_exact and head.spec.tool_type == _RUNTIME:
            return None
        path = head.path
        if kept is not None and kept.integrity == head.integrity and kept.path == path:
            return kept
        if head.item is not None and not head.item.is_verified:
            raise IntegrityError(f"{ref} is not verified.")
        shape = shape_of(ref, chain)
        tool = ToolDef(
            name=name,
            description=shape.description,
            parameters=shape.parameters,
            run=ItemRunner(self._dispatcher, ref, name),
            timeout_s=ItemRunner.timeout_s,
            parallel_safe=shape.parallel_safe,
            read_only=shape.read_only,
            capability=shape.capability,
            origin="item" if shape.server is None else "mcp",
            source=str(ref),
        )
        kept = _Kept(ref, head.integrity, path, tool, tool_tokens(tool.spec))
        self._kept[item_id, name] = kept
        return kept


def names_of(item_ids: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Return the tool names of items: `rye_file_system_read` for `rye/file-system/read`.

    Where that is too long, taken or ambiguous, a hyphen and a digest of the id follow. No flattened
    id holds a hyphen, so an item's id can't be chosen to get another's name.
    """
    ids = tuple(dict.fromkeys(item_ids))
    flat = {item_id: item_id.replace("/", "_").replace("-", "_") for item_id in ids}
    counts = Counter(flat.values())
    counts.update(taken)
    return {
        item_id: name
        if len(name) <= _MAX_NAME and counts[name] == 1
        else _with_digest(item_id, name)
        for item_id, name in flat.items()
    }


def _with_digest(item_id: str, name: str) -> str:
    digest = hashlib.sha256(item_id.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: _MAX_NAME - _DIGEST_CHARS - 1]}-{digest}"


def _of_tools(
    capabilities: Iterable[str], hosts: set[str | None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids of signed tools that capabilities grant by name, and those with a wildcard."""
    exact: set[str] = set()
    patterns: list[str] = []
    for one in capabilities:
        if one.startswith(_TOOLS) and one not in hosts:
            if "*" in one:
                patterns.append(one)
            else:
                exact.add(one.removeprefix(_TOOLS).replace(".", "/"))
    return tuple(sorted(exact)), tuple(patterns)


def _category_of(pattern: str) -> str:
    """Return the first part of every id that a pattern can match; empty where they may differ."""
    first, dot, _ = pattern.removeprefix(_TOOLS).partition("*")[0].partition(".")
    return first if dot and _CATEGORY.fullmatch(first) else ""
