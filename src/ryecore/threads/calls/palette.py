"""What a thread's model can call: built-in tools, signed tools and the host's functions.

What is shown follows from the thread's capabilities. What is not shown, because it doesn't fit, can
still be executed with rye_execute: the palette is a convenience, and each call is checked anew.

Source: docs/design/threads.md#harness; decision 41.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from attrs import frozen

from ryecore.caches import BoundedDict
from ryecore.errors import IntegrityError, MissingExecutorId, RyeError
from ryecore.items.refs import ItemRef, check_item_id
from ryecore.llm.estimate import tool_tokens
from ryecore.policy import allows
from ryecore.policy.permissions import Action, holds_any
from ryecore.runs.host import guarded
from ryecore.runs.ports import Dispatcher
from ryecore.threads.calls.guard import READ_ARTIFACT
from ryecore.threads.calls.item_tools import BUILT_IN_NAMES, item_tool
from ryecore.threads.calls.returning import RETURN_TOOL
from ryecore.tools.context import ToolLimits
from ryecore.tools.definition import ToolDef
from ryecore.tools.failures import shown
from ryecore.tools.items import ItemRunner, shape_of
from ryecore.tools.registry import ToolRegistry

__all__ = [
    "TOKEN_BUDGET",
    "Palette",
    "PaletteBuilder",
    "build_palette",
    "names_of",
]

TOKEN_BUDGET: Final = 2_000
"""About how many tokens the preloaded signed tools may take."""

_WITHOUT_RESULTS: Final = (READ_ARTIFACT, RETURN_TOOL)
_TOOLS: Final = "rye.execute.tool."
_RUNTIME: Final = "runtime"
_MAX_NAME: Final = 64
_DIGEST_CHARS: Final = 16
_LEAST_TOKENS: Final = 20
_MAX_LOOKED_AT: Final = 100
_MAX_LEFT_OUT: Final = 100
_MAX_REMEMBERED: Final = 4_096
_MAX_TREES: Final = 256

_TreeKey: TypeAlias = tuple[tuple[str, ...], tuple[ToolDef, ...], tuple[str, ...]]


@frozen
class Palette:
    """What one thread's model can call.

    Attributes:
        registry: The tools, ready to be called; the thread's own.
        tools: The tools in the order in which they are shown.
        left_out: What is not shown, each with the reason.
        tree: Capabilities and tools as text, for `capabilities.md`.
    """

    registry: ToolRegistry
    tools: tuple[ToolDef, ...]
    left_out: tuple[str, ...]
    tree: str


@frozen
class _Kept:
    """A tool that was made of an item, and of which bytes at which place."""

    ref: ItemRef
    integrity: str
    path: Path | None
    tool: ToolDef
    tokens: int


async def build_palette(
    dispatcher: Dispatcher,
    capabilities: tuple[str, ...],
    host_tools: Iterable[ToolDef],
    extra: Iterable[ToolDef],
    *,
    token_budget: int = TOKEN_BUDGET,
) -> Palette:
    """Build one palette; see `PaletteBuilder.build`."""
    builder = PaletteBuilder(dispatcher)
    return await builder.build(capabilities, host_tools, extra, token_budget=token_budget)


class PaletteBuilder:
    """Builds the palettes of the threads of one open Rye.

    Between threads it remembers tools by the digest of their verified file, and nothing else: which
    items there are, and whether their chains hold, is asked for each palette.

    Args:
        dispatcher: Finds, verifies and executes.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._kept: BoundedDict[tuple[str, str], _Kept] = BoundedDict(_MAX_REMEMBERED)
        self._host: BoundedDict[ToolDef, ToolDef] = BoundedDict(_MAX_REMEMBERED)
        self._trees: BoundedDict[_TreeKey, str] = BoundedDict(_MAX_TREES)
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
        limits: ToolLimits = ToolLimits(),  # noqa: B008 - frozen
    ) -> Palette:
        """Build the palette of one thread.

        Args:
            capabilities: What the thread may do.
            host_tools: The host's functions; those that the capabilities allow are shown.
            extra: The thread's own tools, such as `rye_directive_return`. They are shown always,
                `read_artifact` only beside others.
            token_budget: About how many tokens the signed tools may take.
            limits: What bounds the thread's calls.

        Returns:
            The palette. A tool that can't be offered is left out, and never breaks the thread.
        """
        mine = [self._built_in[action] for action in BUILT_IN_NAMES
                if holds_any(capabilities, action)]  # fmt: skip
        own = list(extra)
        taken = {tool.name for tool in (*self._built_in.values(), *own)}
        hosts, left_out = self._allowed(capabilities, host_tools, taken)
        taken.update(tool.name for tool in hosts)
        wanted = _wanted(capabilities, self._dispatcher, {tool.capability for tool in hosts})
        names = names_of((item_id for item_id, _ in wanted), taken)
        items, missing = await self._items(wanted, names, token_budget)
        left_out += missing
        tools = [*mine, *items, *hosts, *own]
        if all(tool.name in _WITHOUT_RESULTS for tool in tools):
            tools = [tool for tool in tools if tool.name != READ_ARTIFACT]
        if len(left_out) > _MAX_LEFT_OUT:
            more = len(left_out) - _MAX_LEFT_OUT
            left_out = [*left_out[:_MAX_LEFT_OUT], f"and {more} more"]
        return Palette(
            ToolRegistry(tools, limits=limits),
            tuple(tools),
            tuple(left_out),
            self._tree(tuple(capabilities), tuple(tools), tuple(left_out)),
        )

    def _tree(
        self, capabilities: tuple[str, ...], tools: tuple[ToolDef, ...], left_out: tuple[str, ...]
    ) -> str:
        key = (capabilities, tools, left_out)
        tree = self._trees.get(key)
        if tree is None:
            tree = self._trees[key] = _tree(*key)
        return tree

    def _allowed(
        self, capabilities: Sequence[str], host_tools: Iterable[ToolDef], taken: set[str]
    ) -> tuple[list[ToolDef], list[str]]:
        """The host's functions that the thread may call."""
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

    async def _items(
        self, wanted: Sequence[tuple[str, bool]], names: Mapping[str, str], token_budget: int
    ) -> tuple[list[ToolDef], list[str]]:
        tools: list[ToolDef] = []
        left_out: list[str] = []
        used: set[str] = set()
        left = token_budget
        for number, (item_id, is_exact) in enumerate(wanted):
            too_much = f"tool:{item_id}: over the token budget; rye_execute runs it"
            if not is_exact and (left < _LEAST_TOKENS or number >= _MAX_LOOKED_AT):
                left_out.append(too_much)
                continue
            try:
                kept = await self._tool(item_id, names[item_id], is_exact=is_exact)
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
            if kept.tool.name in used:  # two digests that are one, which somebody has sought
                left_out.append(f"tool:{item_id}: another tool has its name")
                continue
            used.add(kept.tool.name)
            left -= kept.tokens
            tools.append(kept.tool)
        return tools, left_out

    async def _tool(self, item_id: str, name: str, *, is_exact: bool) -> _Kept | None:
        """The tool of an item; None where a wildcard found what nobody calls.

        Raises:
            RyeError: Its chain doesn't hold.
            ValueError: Its schema is none.
        """
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
            capability=shape.capability,
            origin="item" if shape.server is None else "mcp",
            source=str(ref),
        )
        kept = _Kept(ref, head.integrity, path, tool, tool_tokens(tool.spec))
        self._kept[item_id, name] = kept
        return kept


def names_of(item_ids: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """What models call items: `rye_file_system_read` for `rye/file-system/read`.

    Where that is too long, taken, or another's too, a digest of the id follows a hyphen. No
    flattened id holds a hyphen, so no item can be given an id by which it gets another's name.

    Args:
        item_ids: The ids.
        taken: Names that no item gets.
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


def _wanted(
    capabilities: Sequence[str], dispatcher: Dispatcher, hosts: set[str | None]
) -> list[tuple[str, bool]]:
    """The ids of signed tools that the capabilities name, and whether by name: these first."""
    exact: set[str] = set()
    patterns: list[str] = []
    for one in capabilities:
        if one.startswith(_TOOLS) and one not in hosts:
            if "*" in one:
                patterns.append(one)
            else:
                exact.add(one.removeprefix(_TOOLS).replace(".", "/"))
    found: set[str] = set()
    if patterns:
        found = {
            item_id
            for item_id in dispatcher.tool_ids()
            if allows(patterns, f"{_TOOLS}{item_id.replace('/', '.')}")
        }
    return [
        *((item_id, True) for item_id in sorted(exact)),
        *((item_id, False) for item_id in sorted(found - exact)),
    ]


def _tree(capabilities: Sequence[str], tools: Sequence[ToolDef], left_out: Sequence[str]) -> str:
    """Capabilities, each with the tools that it grants; the same ones always give the same text."""
    # By name before by wildcard, so that a tool stands below what says most of it.
    granting = sorted(set(capabilities), key=lambda one: ("*" in one, one))
    below: dict[str, list[str]] = {one: [] for one in sorted(granting)}
    built_in: list[str] = []
    for tool in tools:
        if tool.capability is None:
            built_in.append(tool.name)
            continue
        by = next((one for one in granting if allows((one,), tool.capability)), None)
        line = f"{tool.name} ({tool.source})" if tool.source else tool.name
        if by is not None:
            below[by].append(line)
        else:  # a tool of the thread's own that isn't granted: it is shown, and denied
            built_in.append(line)
    blocks = [*below.items()]
    if built_in:
        blocks.append(("built in", built_in))
    if left_out:
        blocks.append(("left out", list(left_out)))
    return "\n".join(line for title, lines in blocks for line in _branch(title, lines))


def _branch(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield title
    for line in lines:
        guide = "└─" if line is lines[-1] else "├─"
        yield f"{guide} {' '.join(line.split())}"
