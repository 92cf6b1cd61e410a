"""The documented calls for models and MCP clients, `rye_execute` and others: each returns a dict.

Each exists twice: for a project path, and, with `answer`, for a Rye that is open already.
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import anyio.to_thread

from ryecore.errors import InputError, InvalidItemId, RyeError
from ryecore.policy import CallContext
from ryecore.rye import Rye

__all__ = ["answer", "rye_execute", "rye_fetch", "rye_sign"]

_MAX_SHOWN: Final = 200
_EXECUTE: Final = frozenset({
    "parameters", "dry_run", "target", "thread", "async", "async_", "model", "limit_overrides",
    "trace", "timeout_s", "idempotency_key",
})  # fmt: skip

_SIGN: Final = frozenset({"source"})
_FETCH_BY_ID: Final = frozenset({"source", "destination", "overwrite"})
_FETCH_BY_QUERY: Final = frozenset({"query", "scope", "source", "limit", "offset"})
_QUERY_ALONE: Final = _FETCH_BY_QUERY - {"source"}


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
    **more: Any,
) -> dict[str, object]:
    """Execute an item, in the form that models and MCP clients use.

    Args:
        item_id: `tool:ID`, `directive:ID` or a bare id.
        project_path: The project's folder.
        parameters: What the item is given.
        dry_run: Validate without executing.
        target: `local`, `remote` or `remote:NAME`.
        thread: `inline` or `fork`.
        model: For directives.
        limit_overrides: For directives.
        deps: The host's, for directives: `module:function`, which makes the models of threads; by
            default the keys in the environment open them.
        **more: `async` (a word that Python keeps for itself), `trace`, `timeout_s` and
            `idempotency_key`.

    Returns:
        The response or error object; never an exception for what a tool or caller did.

    Source: docs/design/execute.md#parameters.
    """
    given = {
        "item_id": item_id, "parameters": parameters, "dry_run": dry_run, "target": target,
        "thread": thread, "model": model, "limit_overrides": limit_overrides, **more,
    }  # fmt: skip
    return await _opened("rye_execute", project_path, given, deps, wants_models=thread == "fork")


async def rye_fetch(
    item_id: str | None = None,
    project_path: str | os.PathLike[str] = ".",
    query: str | None = None,
    scope: str | Sequence[str] | None = None,
    source: str | None = None,
    destination: str | None = None,
    limit: int | None = None,
    offset: int | None = None,
    **more: Any,
) -> dict[str, object]:
    """Fetch one item by its id, or find items by a query: the form that models and MCP clients use.

    Args:
        item_id: A canonical ref, as `knowledge:acme/tides`; else query and scope are needed.
        project_path: The project's folder.
        query: Words to look for; `*` for everything.
        scope: Where: `*`, a kind, or such as `tool.acme.*`.
        source: The one space to look in: `project`, `user` or `system`.
        destination: With an id: the space that gets a copy, `project` or `user`.
        limit: With a query: how many results at most, 1 to 100; 10 by default.
        offset: With a query: how many to pass over.
        **more: With an id: `overwrite`, whether the copy may replace another file.

    Returns:
        The response or error object; never an exception for what a caller did.
    """
    given = {
        "item_id": item_id, "query": query, "scope": scope, "source": source,
        "destination": destination, "limit": limit, "offset": offset, **more,
    }  # fmt: skip
    return await _opened("rye_fetch", project_path, given)


async def rye_sign(
    item_id: str, project_path: str | os.PathLike[str], source: str = "project"
) -> dict[str, object]:
    """Sign an item, or all that a glob matches, in the form that models use, for the person here.

    Args:
        item_id: `kind:id`, or a glob such as `tool:acme/*`.
        project_path: The project's folder.
        source: The space to look in: `project` or `user`.

    Returns:
        The response or error object; never an exception for what a caller did.
    """
    return await _opened("rye_sign", project_path, {"item_id": item_id, "source": source})


async def answer(
    call: str, rye: Rye, arguments: Mapping[str, Any], ctx: CallContext | None = None
) -> dict[str, object]:
    """Answer a documented call with a Rye that is open already.

    Args:
        call: `rye_execute`, `rye_fetch` or `rye_sign`.
        rye: The open Rye.
        arguments: What the call was given, without `project_path`.
        ctx: On whose behalf; the host's own by default.

    Returns:
        The response or error object; never an exception for what a tool or caller did.
    """
    ctx = ctx or CallContext()
    try:
        _check_item_id(arguments.get("item_id"))
        return await _CALLS[call](rye, arguments, ctx)
    except RyeError as error:
        return _refusal(error, arguments)
    except RecursionError:
        return InputError(
            "An argument is nested too deeply.", next_step="Pass a flatter one."
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
        models: Mapping[str, Any] = {}
        if deps is not None or wants_models:
            from ryecore.host_factory import host_options  # noqa: PLC0415 - for threads alone

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
    except Exception:  # nested too deeply, or a repr of the caller's own
        return f"<{type(value).__name__}>"


def _check_item_id(item_id: object) -> None:
    if item_id is not None and not isinstance(item_id, str):
        raise InvalidItemId(
            f"item_id must be a string, not {type(item_id).__name__}.",
            next_step="Pass tool:ID or directive:ID.",
        )


def _check_names(arguments: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = arguments.keys() - known - {"item_id"}
    if unknown:
        raise InputError(
            f"Unknown arguments: {', '.join(sorted(map(str, unknown)))}.",
            next_step="Leave them out.",
        )


async def _execute(rye: Rye, given: Mapping[str, Any], ctx: CallContext) -> dict[str, object]:
    _check_names(given, _EXECUTE)
    done = await rye.execute(
        given.get("item_id", ""),
        given.get("parameters"),
        dry_run=given.get("dry_run", False),
        target=given.get("target", "local"),
        thread=given.get("thread", "inline"),
        async_=given.get("async", given.get("async_", False)),
        model=given.get("model"),
        limits=given.get("limit_overrides"),
        trace=given.get("trace", False),
        timeout_s=given.get("timeout_s"),
        idempotency_key=given.get("idempotency_key"),
        ctx=ctx,
    )
    return done.to_dict()


async def _fetch(rye: Rye, given: Mapping[str, Any], ctx: CallContext) -> dict[str, object]:
    given = {name: value for name, value in given.items() if value is not None}
    by_id, by_query = "item_id" in given, not _QUERY_ALONE.isdisjoint(given)
    if by_id and by_query:
        raise InputError("Provide item_id or query, not both.", next_step="Leave one of them out.")
    if by_query and {"query", "scope"} <= given.keys():
        return await _find(rye, given, ctx)
    if not by_id:
        raise InputError(
            "Provide item_id or query+scope.", next_step='Pass tool:ID, or a query and scope="*".'
        )
    _check_names(given, _FETCH_BY_ID)
    found = await rye.fetch(
        given["item_id"],
        source=given.get("source"),
        destination=given.get("destination"),
        overwrite=given.get("overwrite") is True,
        ctx=ctx,
    )
    return found.to_dict()


async def _find(rye: Rye, given: Mapping[str, Any], ctx: CallContext) -> dict[str, object]:
    _check_names(given, _FETCH_BY_QUERY)
    found = await rye.search(
        given["query"],
        scope=given["scope"],
        source=given.get("source"),
        limit=given.get("limit", 10),
        offset=given.get("offset", 0),
        ctx=ctx,
    )
    return found.to_dict()


async def _sign(rye: Rye, given: Mapping[str, Any], ctx: CallContext) -> dict[str, object]:
    _check_names(given, _SIGN)
    pattern: object = given.get("item_id")
    space: Any = given.get("source") or "project"  # which is checked
    if not isinstance(pattern, str) or not pattern:
        raise InvalidItemId("item_id is required.", next_step="Pass tool:ID, or tool:acme/*.")
    if ctx.capabilities is None:
        # The host's own call: the person whose key it is.
        done = await anyio.to_thread.run_sync(partial(rye.sign, pattern, space=space))
    else:
        done = await rye.request_signing(pattern, ctx=ctx, space=space)
    return done.to_dict()


_CALLS: Final = {"rye_sign": _sign, "rye_execute": _execute, "rye_fetch": _fetch}
