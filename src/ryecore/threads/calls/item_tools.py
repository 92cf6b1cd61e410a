"""The built-in tools with which a thread's model uses items: rye_execute, rye_fetch, rye_sign.

Permissions are decided elsewhere: each call goes to the dispatcher in the thread's own context,
which first resolves the item, and then checks the capability for that very item.

Source: docs/design/threads.md#harness; decisions 13, 41 and 43.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from ryecore.errors import InvalidInputs, RyeError, ToolCallError
from ryecore.items.refs import ItemRef
from ryecore.policy.limits import LIMIT_NAMES
from ryecore.policy.permissions import Action, allows, capability_of, holds_any
from ryecore.runs.ports import CallOptions, Dispatcher
from ryecore.threads.calls.guard import strip_envelope
from ryecore.tools.context import ToolContext
from ryecore.tools.definition import ToolDef, ToolFunction
from ryecore.tools.failures import invalid_arguments, shown
from ryecore.tools.item_content import as_model_gets, has_blocks
from ryecore.tools.items import refusal

__all__ = ["BUILT_IN_NAMES", "grants", "item_tool", "needed_for"]

BUILT_IN_NAMES: Final[Mapping[Action, str]] = {
    "execute": "rye_execute",
    "fetch": "rye_fetch",
    "sign": "rye_sign",
}
"""The names of the built-in tools, by their primary actions."""

_DESCRIPTIONS: Final[Mapping[Action, str]] = {
    "execute": (
        "Execute a signed tool or directive. A tool runs and its result comes back. A directive "
        'with thread "inline" gives you its directions to follow; with "fork" a thread of its own '
        "follows them and its result comes back."
    ),
    "fetch": (
        "Read one item by item_id, or find items by query and scope. Every item is verified."
    ),
    "sign": "Ask the person to sign items. Exactly what they approve is signed.",
}

_EXECUTE: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "item_id": {
            "type": "string",
            "description": "What to execute: tool:ID or directive:ID, such as tool:rye/bash.",
        },
        "parameters": {
            "type": "object",
            "default": {},
            "description": "The tool's parameters, or the directive's inputs.",
        },
        "thread": {
            "type": "string",
            "enum": ["inline", "fork"],
            "default": "inline",
            "description": "fork: run a directive in a thread of its own.",
        },
        "async": {
            "type": "boolean",
            "default": False,
            "description": "Come back at once with a thread_id.",
        },
        "model": {"type": "string", "description": "With fork: provider/model, or a tier."},
        "limit_overrides": {
            "type": "object",
            "additionalProperties": {"type": "number"},
            "description": f"With fork, or for a graph: {', '.join(LIMIT_NAMES)}.",
        },
        "target": {
            "type": "string",
            "description": "Where: local; or another machine: remote, or remote:NAME.",
        },
        "dry_run": {
            "type": "boolean",
            "default": False,
            "description": "Check everything and run nothing.",
        },
    },
    "required": ["item_id"],
    "additionalProperties": False,
}
_FETCH: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "item_id": {
            "type": "string",
            "description": "What to read: tool:ID, directive:ID, knowledge:ID or config:ID.",
        },
        "query": {
            "type": "string",
            "description": 'Words to find items by; AND, OR, NOT, "a phrase", prefix*; * for all.',
        },
        "scope": {
            "type": "string",
            "default": "*",
            "description": "Where: *, a kind such as tool, or such as tool.acme.*.",
        },
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
        "offset": {"type": "integer", "minimum": 0, "default": 0},
    },
    "additionalProperties": False,
}
_SIGN: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "item_id": {
            "type": "string",
            "description": "What to sign: KIND:ID, or a glob such as tool:acme/*.",
        },
    },
    "required": ["item_id"],
    "additionalProperties": False,
}
_SCHEMAS: Final[Mapping[Action, Mapping[str, Any]]] = {
    "execute": _EXECUTE,
    "fetch": _FETCH,
    "sign": _SIGN,
}


def item_tool(action: Action, dispatcher: Dispatcher) -> ToolDef:
    """Make the built-in tool of a primary action.

    Its results are response objects without chain, paths and signatures. A forbidden call is
    denied, an impossible one fails; a tool or a child that ran and failed is a result.
    """
    name = BUILT_IN_NAMES[action]
    runs: Mapping[Action, ToolFunction] = {
        "execute": _Execute(dispatcher),
        "fetch": _Fetch(dispatcher),
        "sign": _Sign(dispatcher),
    }
    return ToolDef(
        name=name,
        description=_DESCRIPTIONS[action],
        parameters=_SCHEMAS[action],
        run=runs[action],
        parallel_safe=action == "fetch",
        read_only=action == "fetch",
        timeout_s=math.inf,  # the item has its own limits
        source=f"the built-in {name}",
    )


class _Bound:
    """A primary action, bound to a dispatcher."""

    __slots__ = ("_dispatcher",)

    action: Action

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def __call__(self, arguments: Mapping[str, Any], ctx: ToolContext) -> object:
        """Perform the action on behalf of the thread."""
        name = BUILT_IN_NAMES[self.action]
        try:
            document = strip_envelope(await self._response(arguments, ctx))
        except ToolCallError:
            raise
        except InvalidInputs as error:
            raise invalid_arguments(name, *error.failures, error.next_step) from None
        except RyeError as error:
            raise refusal(name, error) from None
        said = document.get("error")
        if isinstance(said, str):
            document["error"] = shown(said)
        if has_blocks(document.get("data")):  # images, audio and files of a tool
            document["data"] = await as_model_gets(document["data"], ctx.media)
        return document

    async def _response(self, given: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, object]:
        raise NotImplementedError


class _Execute(_Bound):
    """The tool rye_execute."""

    __slots__ = ()

    action: Action = "execute"

    async def _response(self, given: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, object]:
        dispatcher, call = self._dispatcher, ctx.call
        item_id, parameters = given["item_id"], given.get("parameters") or {}
        is_fork, is_async = given.get("thread") == "fork", given.get("async") is True
        is_dry, target = given.get("dry_run") is True, given.get("target", "local")
        options: CallOptions = {} if target == "local" else {"target": target}
        limits = given.get("limit_overrides")
        if not is_fork:
            is_foreign = {
                'model: with thread "fork"': given.get("model") is not None,
                'limit_overrides: with thread "fork", or for a graph as tool:ID': (
                    limits is not None and not item_id.startswith("tool:")
                ),
            }
            foreign = [problem for problem, is_so in is_foreign.items() if is_so]
            if foreign:
                raise invalid_arguments(BUILT_IN_NAMES["execute"], *foreign)
        if limits is not None:
            options["limits"] = limits
        if is_dry and is_async:
            raise invalid_arguments(BUILT_IN_NAMES["execute"], "dry_run: not with async")
        if is_dry:
            done = await dispatcher.execute(item_id, parameters, dry_run=True, ctx=call, **options)
            return done.to_dict()
        if is_fork:
            forked = await dispatcher.fork(
                item_id,
                parameters,
                async_=is_async,
                model=given.get("model"),
                ctx=call,
                **options,
            )
            return forked.to_dict()
        if is_async:
            return (await dispatcher.launch(item_id, parameters, ctx=call, **options)).to_dict()
        return (await dispatcher.execute(item_id, parameters, ctx=call, **options)).to_dict()


class _Fetch(_Bound):
    """The tool rye_fetch."""

    __slots__ = ()

    action: Action = "fetch"

    async def _response(self, given: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, object]:
        item_id, query = given.get("item_id"), given.get("query")
        if (item_id is None) == (query is None):
            raise invalid_arguments(BUILT_IN_NAMES["fetch"], "give item_id, or query and scope")
        if item_id is not None:
            return (await self._dispatcher.fetch(item_id, ctx=ctx.call)).to_dict()
        found = await self._dispatcher.search(
            str(query),
            scope=given.get("scope", "*"),
            limit=given.get("limit", 10),
            offset=given.get("offset", 0),
            ctx=ctx.call,
        )
        document = found.to_dict()
        results = document["results"]
        if isinstance(results, list):
            document["results"] = [strip_envelope(one) for one in results]
        return document


class _Sign(_Bound):
    """The tool rye_sign."""

    __slots__ = ()

    action: Action = "sign"

    async def _response(self, given: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, object]:
        done = (await self._dispatcher.request_signing(given["item_id"], ctx=ctx.call)).to_dict()
        document = dict(done)
        for name in ("signed", "failed"):
            listed = document.get(name)
            if isinstance(listed, list):
                document[name] = [strip_envelope(one) for one in listed]
        return document


_ANY_FETCH: Final = "rye.fetch.*"


def needed_for(action: Action, arguments_json: str) -> tuple[str, ...] | None:
    """Return the capabilities that allow a call of `rye_execute`, `rye_fetch` or `rye_sign`.

    Any of them suffices: one, or two for a bare id, which may be a directive or a tool. None where
    the arguments don't tell which item is meant.
    """
    try:
        given = json.loads(arguments_json or "{}")
    except ValueError:
        return None
    item_id = given.get("item_id") if isinstance(given, dict) else None
    if not isinstance(item_id, str):
        return (_ANY_FETCH,) if action == "fetch" else None
    if action == "sign" and "*" in item_id:
        return None  # what the glob matched then is unknown
    needed: list[str] = []
    for kind in ("directive", "tool"):  # a bare id is either
        try:
            ref = ItemRef.parse(item_id, kind)
        except RyeError:
            return None
        needed.append(capability_of(action, ref.kind, ref.id))
    return tuple(dict.fromkeys(needed))


def grants(capabilities: frozenset[str], needed: str) -> bool:
    """Return whether capabilities grant one that `needed_for` returned."""
    if needed == _ANY_FETCH:
        return holds_any(capabilities, "fetch")
    return allows(capabilities, needed)
