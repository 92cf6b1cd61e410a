"""Signed items as tools: described by the item, and verified again at each call.

Source: docs/design/execute.md#tools; decisions 26, 30 and 41.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, Protocol

from ryecore.chain.model import ChainTrace, ExecutionResult, ValidChain
from ryecore.display.sanitize import drop_invisible, warn
from ryecore.errors import (
    CallCancelled,
    ChainError,
    InputError,
    IntegrityError,
    InvalidParameters,
    ItemError,
    McpToolChanged,
    NotApproved,
    RyeError,
    ToolCallError,
    ToolCancelledError,
    ToolExecutionError,
    ToolPolicyError,
)
from ryecore.frozen import frozen
from ryecore.items.description import describe
from ryecore.items.metadata import python_docstring
from ryecore.items.refs import ItemRef
from ryecore.items.verification import VerifiedItem
from ryecore.policy import CallContext, capability_of
from ryecore.search.model import SearchResults
from ryecore.tools.context import ToolContext
from ryecore.tools.failures import invalid_arguments
from ryecore.tools.item_content import as_model_gets

__all__ = [
    "ItemExecutor",
    "ItemRunner",
    "ItemShape",
    "pinned_items",
    "read_item",
    "refusal",
    "shape_of",
]

_MAX_DESCRIPTION: Final = 4096
_EXACT: Final = frozenset({"enum", "const", "pattern", "required", "dependentRequired", "$ref"})
"""Keywords of JSON Schema whose values a call is compared with, so that they stay as they are."""
_NAMED_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
"""Keywords whose value maps names of the author's choice to schemas."""
_PAGE: Final = 100
_MAX_NAMED: Final = 5


class ItemExecutor(Protocol):
    """The protocol of an executor of items, such as `Rye`."""

    async def execute(
        self,
        ref: str | ItemRef,
        parameters: Mapping[str, Any] | None = None,
        *,
        ctx: CallContext | None = None,
    ) -> ExecutionResult:
        """Execute an item through its verified chain."""
        ...

    async def trace(self, ref: str | ItemRef, *, ctx: CallContext | None = None) -> ChainTrace:
        """Return the verified chain of an item, without running it."""
        ...

    async def search(
        self, query: str, *, scope: str = "*", limit: int = 10, offset: int = 0
    ) -> SearchResults:
        """Find items by their contents."""
        ...


@frozen
class ItemShape:
    """The description of a signed tool.

    The name is made of its id. The texts of an MCP tool are untrusted: cleaned and shortened.
    `capability` is what a caller needs; `server`, the MCP server that the tool belongs to.
    """

    ref: ItemRef
    name: str
    description: str
    parameters: Mapping[str, Any]
    capability: str
    server: str | None
    parallel_safe: bool | None = None
    read_only: bool = False


async def read_item(rye: ItemExecutor, ref: str | ItemRef) -> ItemShape:
    """Read the description of a tool, and verify its whole chain; an MCP tool must be pinned."""
    wanted = ref if isinstance(ref, ItemRef) else ItemRef.parse(ref, "tool")
    if wanted.kind != "tool":
        raise InputError(f"{wanted} isn't a tool.", next_step="Name one, such as tool:acme/x.")
    return shape_of(wanted, (await rye.trace(wanted)).chain)


def shape_of(wanted: ItemRef, chain: ValidChain) -> ItemShape:
    """Return the description of a tool by its verified chain.

    An InputError refuses a primitive, and an MCP tool that isn't pinned.
    """
    if chain.is_pinned is False:
        raise InputError(
            f"{wanted} is not pinned, so it can't be offered to a model.",
            next_step="Pin it: rye mcp pin",
        )
    head = chain.head
    if head.item is None:
        raise InputError(
            f"{wanted} is a primitive.", next_step="Name a tool that stands in a file."
        )
    said = describe("tool", head.item.source.relative, head.item.content)
    server = head.spec.config.get("server") if chain.is_pinned else None
    description = said.description or _docstring(head.item) or said.title
    schema = head.spec.config_schema or {"type": "object", "properties": {}}
    return ItemShape(
        wanted,
        wanted.id.replace("/", "__")[-64:],
        _cleaned(description) if server else description,
        _cleaned_schema(schema) if server else schema,
        capability_of("execute", "tool", wanted.id),
        str(server) if server else None,
        head.spec.parallel_safe,
        head.spec.hints.get("read_only", False),
    )


async def pinned_items(rye: ItemExecutor, server: str | ItemRef) -> tuple[ItemRef, ...]:
    """Return the pinned tools of an MCP server, in the order of their ids; at least one.

    A file that can't be verified, or has no chain, is left out with a warning that names it: else
    any unsigned file that mentions the server would take away the tools that are signed.
    """
    wanted = server if isinstance(server, ItemRef) else ItemRef.parse(server, "tool")
    refs: set[ItemRef] = set()
    offset: int | None = 0
    while offset is not None:
        page = await rye.search(f'"{wanted.id}"', scope="tool", limit=_PAGE, offset=offset)
        refs.update(one.ref for one in page.results)
        offset = page.next_offset
    found: list[ItemRef] = []
    left_out: list[tuple[ItemRef, RyeError]] = []
    for ref in sorted(refs - {wanted}, key=str):
        try:
            config = (await rye.trace(ref)).chain.head.spec.config
        except (IntegrityError, ItemError, ChainError) as refused:
            left_out.append((ref, refused))
            continue
        if config.get("server") == wanted.id and config.get("pin"):
            found.append(ref)
    named = ", ".join(str(ref) for ref, _ in left_out[:_MAX_NAMED])
    if len(left_out) > _MAX_NAMED:
        named += f" and {len(left_out) - _MAX_NAMED} more"
    if not found:
        said = f" {named} can't be verified: {left_out[0][1].message}" if left_out else ""
        raise InputError(
            f"No tool of {wanted} is pinned.{said}",
            next_step=f"Pin those that you want: rye mcp pin {wanted.id} NAME --sign",
        )
    if left_out:
        warn(
            f"Left out of the tools of {wanted}: {named}. See why with rye verify; sign or remove "
            "it."
        )
    return tuple(found)


class ItemRunner:
    """Executes an item for models, through its chain, which is verified anew each time."""

    __slots__ = ("_name", "_ref", "_rye")

    timeout_s: Final = math.inf  # the chain has timeouts of its own, which say more

    def __init__(self, rye: ItemExecutor, ref: ItemRef, name: str) -> None:
        self._rye = rye
        self._ref = ref
        self._name = name

    async def digest(self, ctx: ToolContext, seen: list[object]) -> str:
        """Return the digest of all files of the item's verified chain."""
        chain = (await self._rye.trace(self._ref)).chain
        return " ".join(f"{one.item_id}@{one.integrity}" for one in chain.all_elements)

    async def __call__(self, arguments: Mapping[str, Any], ctx: ToolContext) -> object:
        """Execute the item, and return its data; images, audio and files among it as media."""
        try:
            done = await self._rye.execute(self._ref, arguments, ctx=ctx.call)
        except RyeError as error:
            raise refusal(self._name, error) from None
        if done.status == "error":
            raise ToolExecutionError(
                f"The tool {self._name} failed: {done.error}", tool_name=self._name
            )
        return await as_model_gets(done.data, ctx.media)


def _docstring(item: VerifiedItem) -> str:
    """Return the docstring of a Python tool's module; empty for any other tool."""
    path = item.source.path
    return python_docstring(item.content, path) if path.suffix == ".py" else ""


def refusal(tool_name: str, error: RyeError) -> ToolCallError:
    """Return an error of the chain as an error of a tool call.

    What doesn't verify, or isn't allowed, is denied: no model can correct it, and none is to try
    again.
    """
    if isinstance(error, InvalidParameters):
        return invalid_arguments(tool_name, *error.failures)
    if isinstance(error, CallCancelled):
        return ToolCancelledError(error.message, tool_name=tool_name)
    is_denied = isinstance(error, IntegrityError | McpToolChanged | NotApproved)
    kind = ToolPolicyError if is_denied or "capability" in error.facts else ToolExecutionError
    return kind(
        f"The tool {tool_name} could not run: {error.message}",
        tool_name=tool_name,
        refusal=error.error_type,
    )


def _cleaned(text: str) -> str:
    """Return a stranger's words without what doesn't show, and not too many of them."""
    seen = drop_invisible(text)
    return seen if len(seen) <= _MAX_DESCRIPTION else f"{seen[:_MAX_DESCRIPTION]}…"


def _cleaned_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose texts are cleaned as a description is, at any depth."""
    cleaned: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED_SCHEMAS and isinstance(value, Mapping):
            cleaned[key] = {name: _cleaned_value(one) for name, one in value.items()}
        else:
            cleaned[key] = value if key in _EXACT else _cleaned_value(value)
    return cleaned


def _cleaned_value(value: object) -> object:
    if isinstance(value, str):
        return _cleaned(value)
    if isinstance(value, Mapping):
        return _cleaned_schema(value)
    return [_cleaned_value(one) for one in value] if isinstance(value, list | tuple) else value
