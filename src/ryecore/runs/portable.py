"""Requests of runs, and their callers, as JSON for another process.

Callables and keys are rebuilt by the host there; cancellation and event sinks have no meaning in
another process.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve

from ryecore.errors import InputError
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.policy.limits import read_limits
from ryecore.runs.request import GraphOptions, RunRequest, ThreadOptions

__all__ = [
    "portable",
    "read_context",
    "read_request",
    "write_context",
    "write_json",
    "write_request",
]

_CONTEXT: Final = ("budget_account", "depth", "deadline", "call_id", "parent", "caller")


def portable(ctx: CallContext) -> CallContext:
    """Return a context without what has no meaning in another process."""
    return evolve(
        ctx,
        cancellation=None,
        event_sink=None,
        budget=None,
        execution=None,
        intent=None,
        report_sink=None,
        ask=None,
    )


def write_request(request: RunRequest) -> dict[str, object]:
    """Return a request as JSON types, without its idempotency key and its registered run."""
    return {
        "ref": str(request.ref),
        "inputs": dict(request.inputs),
        "limits": request.limits.to_dict(),
        "model": request.model,
        "timeout_s": request.timeout_s,
        "muted_hooks": sorted(request.thread.muted_hooks),
        "digest": request.graph.digest,
        "target": request.target,
        "collect": request.collect,
        "queue": request.queue,
    }


def read_request(values: Mapping[str, Any]) -> RunRequest:
    """Return the request that `write_request` wrote."""
    return RunRequest(
        ItemRef.parse(values["ref"]),
        values["inputs"],
        read_limits(values["limits"]),
        values["model"],
        values["timeout_s"],
        target=values["target"],
        collect=values["collect"],
        queue=values["queue"],
        thread=ThreadOptions(frozenset(values["muted_hooks"])),
        graph=GraphOptions(values["digest"]),
    )


def write_context(ctx: CallContext) -> dict[str, object]:
    """Return a context as JSON types. Its deadline is on the clock of this machine."""
    return {
        "capabilities": None if ctx.capabilities is None else sorted(ctx.capabilities),
        **{name: getattr(ctx, name) for name in _CONTEXT},
        "labels": dict(ctx.labels),
    }


def read_context(values: Mapping[str, Any]) -> CallContext:
    """Return the context that `write_context` wrote."""
    capabilities = values["capabilities"]
    rest = {name: value for name, value in values.items() if name != "capabilities"}
    return CallContext(None if capabilities is None else frozenset(capabilities), **rest)


def write_json(document: Mapping[str, object]) -> str:
    """Return a document for another process as JSON.

    Raises:
        InputError: It can't be written as JSON.
    """
    try:
        return json.dumps(document, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"What runs in another process is sent as JSON, and this can't be: {problem}.",
            next_step="Pass text, numbers, booleans, null, lists and mappings with text keys.",
        ) from None
