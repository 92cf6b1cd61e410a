"""The documented calls for models and MCP clients, `rye_execute` and others: each returns a dict.

Each takes a project's path; `answer` does the same with a Rye that is open already.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypedDict, Unpack

import anyio.to_thread

from ryecore.actions.settings import OpenOptions
from ryecore.errors import InputError, InvalidItemId, RyeError
from ryecore.policy import CallContext
from ryecore.rye import Rye

__all__ = ["EXECUTE_KEYWORDS", "answer", "rye_execute", "rye_fetch", "rye_sign"]

_MAX_SHOWN: Final = 200

EXECUTE_KEYWORDS: Final[Mapping[str, str]] = {
    "parameters": "parameters",
    "dry_run": "dry_run",
    "target": "target",
    "thread": "thread",
    "async": "async_",
    "async_": "async_",
    "model": "model",
    "limit_overrides": "limits",
    "trace": "trace",
    "timeout_s": "timeout_s",
    "idempotency_key": "idempotency_key",
}
"""The arguments of `rye_execute`, each with the keyword of `Rye.execute` that it becomes."""

_SIGN: Final = frozenset({"source"})
_FETCH_BY_ID: Final = frozenset({"source", "destination", "overwrite"})
_FETCH_BY_QUERY: Final = frozenset({"query", "scope", "source", "limit", "offset"})
_QUERY_ALONE: Final = _FETCH_BY_QUERY - {"source"}


class _ExecuteMore(TypedDict, total=False):
    async_: bool
    trace: bool
    timeout_s: float | None
    idempotency_key: str | None


class _FetchMore(TypedDict, total=False):
    overwrite: bool


async def rye_execute(
    item_id: str,
    project_path: str | os.PathLike[str],
    parameters: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    target: str = "local",
    thread: str = "inline",
    model: str | None = None,
    limit_overrides: Mapping[str, float] | None = None,
    deps: str | None = None,
    **more: Unpack[_ExecuteMore],
) -> dict[str, object]:
    """Execute an item, in the form that models and MCP clients use.

    Args:
        item_id: `tool:ID`, `directive:ID` or a bare id.
        project_path: The project's folder.
        parameters: The parameters of a tool, or the inputs of a directive.
        dry_run: Whether to verify, validate and plan without executing.
        target: `local`, `remote` or `remote:NAME`.
        thread: `inline` or `fork`.
        model: For a directive: `provider/model`, or a tier or name of `agent/agent.yaml`.
        limit_overrides: For a directive or a graph: limits by name, such as `{"turns": 8}`.
        deps: For a directive: `module:function`, the host's factory of models; by default models
            come from the keys in the environment.
        **more: `async_` (`async` in JSON, a reserved word of Python), `trace`, `timeout_s` and
            `idempotency_key`.

    Returns:
        The response or error object; never an exception for a mistake of the tool or the caller.

    Source: docs/design/execute.md#parameters.
    """
    arguments = {
        "item_id": item_id, "parameters": parameters, "dry_run": dry_run, "target": target,
        "thread": thread, "model": model, "limit_overrides": limit_overrides, **more,
    }  # fmt: skip
    return await _opened(
        "rye_execute", project_path, arguments, deps, wants_models=thread == "fork"
    )


async def rye_fetch(
    item_id: str | None = None,
    project_path: str | os.PathLike[str] = ".",
    query: str | None = None,
    scope: str | Sequence[str] | None = None,
    source: str | None = None,
    destination: str | None = None,
    limit: int | None = None,
    offset: int | None = None,
    **more: Unpack[_FetchMore],
) -> dict[str, object]:
    """Fetch one item by its id, or find items by a query: the form that models and MCP clients use.

    Args:
        item_id: A canonical ref such as `knowledge:acme/tides`; without it, query and scope are
            needed.
        project_path: The project's folder.
        query: The words to search for; `*` for everything.
        scope: Where to search: `*`, a kind, or a pattern such as `tool.acme.*`.
        source: The only space to search: `project`, `user` or `system`.
        destination: With an id: the space that gets a copy, `project` or `user`.
        limit: With a query: the most results, 1 to 100; 10 by default.
        offset: With a query: the number of results to skip.
        **more: With an id: `overwrite`, whether the copy may replace another file.

    Returns:
        The response or error object; never an exception for a mistake of the caller.
    """
    arguments = {
        "item_id": item_id, "query": query, "scope": scope, "source": source,
        "destination": destination, "limit": limit, "offset": offset, **more,
    }  # fmt: skip
    return await _opened("rye_fetch", project_path, arguments)


async def rye_sign(
    item_id: str, project_path: str | os.PathLike[str], source: str = "project"
) -> dict[str, object]:
    """Sign an item, or all that a glob matches, with the key of the person who runs this process.

    Args:
        item_id: `kind:id`, or a glob such as `tool:acme/*`.
        project_path: The project's folder.
        source: The space to sign in: `project` or `user`.

    Returns:
        The response or error object; never an exception for a mistake of the caller.
    """
    return await _opened("rye_sign", project_path, {"item_id": item_id, "source": source})


async def answer(
    call: str, rye: Rye, arguments: Mapping[str, Any], ctx: CallContext | None = None
) -> dict[str, object]:
    """Answer `rye_execute`, `rye_fetch` or `rye_sign` with a Rye that is open already.

    `arguments` has no `project_path`. A mistake of the tool or the caller is an error object.
    """
    ctx = ctx or CallContext()
    try:
        _check_item_id(arguments.get("item_id"))
        return await _CALLS[call](rye, arguments, ctx)
    except RyeError as error:
        return _refusal(error, arguments)
    except RecursionError:
        return InputError(
            "An argument is nested too deeply.", next_step="Pass one with fewer levels."
        ).to_dict()


async def _opened(
    call: str,
    project_path: str | os.PathLike[str],
    arguments: Mapping[str, Any],
    deps: str | None = None,
    *,
    wants_models: bool = False,
) -> dict[str, object]:
    try:
        models: OpenOptions = {}
        if deps is not None or wants_models:
            from ryecore.host_factory import host_options  # noqa: PLC0415 - only for threads

            models = host_options(deps, os.environ)
        async with Rye.open(project_path, **models) as rye:
            return await answer(call, rye, arguments)
    except RyeError as error:
        return _refusal(error, arguments)


def _refusal(error: RyeError, arguments: Mapping[str, Any]) -> dict[str, object]:
    item_id = arguments.get("item_id")
    if item_id is None:
        return error.to_dict()
    return error.during(item_id if isinstance(item_id, str) else _shown(item_id)).to_dict()


def _shown(value: object) -> str:
    try:
        return repr(value)[:_MAX_SHOWN]
    except Exception:  # nested too deeply, or its own __repr__ fails
        return f"<{type(value).__name__}>"


def _check_item_id(item_id: object) -> None:
    if item_id is not None and not isinstance(item_id, str):
        raise InvalidItemId(
            f"item_id must be a string, not {type(item_id).__name__}.",
            next_step="Pass tool:ID or directive:ID.",
        )


def _check_names(arguments: Mapping[str, Any], known: Collection[str]) -> None:
    unknown = arguments.keys() - {*known, "item_id"}
    if unknown:
        raise InputError(
            f"Unknown arguments: {', '.join(sorted(map(str, unknown)))}.",
            next_step="Leave them out.",
        )


async def _execute(rye: Rye, arguments: Mapping[str, Any], ctx: CallContext) -> dict[str, object]:
    _check_names(arguments, EXECUTE_KEYWORDS)
    options: dict[str, Any] = {
        EXECUTE_KEYWORDS[name]: value for name, value in arguments.items() if name != "item_id"
    }
    done = await rye.execute(arguments.get("item_id", ""), **options, ctx=ctx)
    return done.to_dict()


async def _fetch(rye: Rye, arguments: Mapping[str, Any], ctx: CallContext) -> dict[str, object]:
    arguments = {name: value for name, value in arguments.items() if value is not None}
    by_id, by_query = "item_id" in arguments, not _QUERY_ALONE.isdisjoint(arguments)
    if by_id and by_query:
        raise InputError("Provide item_id or query, not both.", next_step="Leave one of them out.")
    if by_query and {"query", "scope"} <= arguments.keys():
        return await _find(rye, arguments, ctx)
    if not by_id:
        raise InputError(
            "Provide item_id or query+scope.", next_step='Pass tool:ID, or a query and scope="*".'
        )
    _check_names(arguments, _FETCH_BY_ID)
    found = await rye.fetch(
        arguments["item_id"],
        source=arguments.get("source"),
        destination=arguments.get("destination"),
        overwrite=arguments.get("overwrite") is True,
        ctx=ctx,
    )
    return found.to_dict()


async def _find(rye: Rye, arguments: Mapping[str, Any], ctx: CallContext) -> dict[str, object]:
    _check_names(arguments, _FETCH_BY_QUERY)
    found = await rye.search(
        arguments["query"],
        scope=arguments["scope"],
        source=arguments.get("source"),
        limit=arguments.get("limit", 10),
        offset=arguments.get("offset", 0),
        ctx=ctx,
    )
    return found.to_dict()


async def _sign(rye: Rye, arguments: Mapping[str, Any], ctx: CallContext) -> dict[str, object]:
    _check_names(arguments, _SIGN)
    pattern: object = arguments.get("item_id")
    space: Any = arguments.get("source") or "project"  # checked by sign
    if not isinstance(pattern, str) or not pattern:
        raise InvalidItemId("item_id is required.", next_step="Pass tool:ID, or tool:acme/*.")
    if ctx.capabilities is None:
        # The host's own call, for the person who owns the key.
        done = await anyio.to_thread.run_sync(partial(rye.sign, pattern, space=space))
    else:
        done = await rye.request_signing(pattern, ctx=ctx, space=space)
    return done.to_dict()


_CALLS: Final = {"rye_sign": _sign, "rye_execute": _execute, "rye_fetch": _fetch}
