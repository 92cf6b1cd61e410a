"""The tool `rye_orchestrator`, with which a thread manages the threads that it has started.

ryecore serves it in its own process: only there are the caller's context, and the host's models,
which a resumed thread needs.

Source: docs/design/threads.md#orchestrator; decisions 41 and 46.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from ryecore.errors import InputError, InvalidParameters, RyeError
from ryecore.frozen import frozen
from ryecore.items.refs import ORCHESTRATOR
from ryecore.lillux.schema import SchemaValidator
from ryecore.policy import CallContext, capability_of
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_in_thread
from ryecore.threads.orchestrator import operations
from ryecore.threads.orchestrator.chain_search import MAX_QUERY_CHARS, MAX_RESULTS
from ryecore.threads.orchestrator.children import Document
from ryecore.threads.orchestrator.operations import MAX_TAIL_LINES, MAX_THREAD_IDS, MAX_WAIT_S
from ryecore.tools.context import ToolContext
from ryecore.tools.definition import ToolDef
from ryecore.tools.failures import invalid_arguments

if TYPE_CHECKING:
    from ryecore.threads.service import ThreadService

__all__ = ["CAPABILITY", "PARAMETERS", "TOOL_NAME", "Orchestrator", "orchestrator_tool"]

TOOL_NAME: Final = "rye_orchestrator"
CAPABILITY: Final = capability_of("execute", "tool", ORCHESTRATOR)


@frozen
class _Operation:
    """An operation, with the parameters that it needs and those that it may have."""

    run: Callable[..., Awaitable[Document]]
    needs: tuple[str, ...] = ("thread_id",)
    may_have: tuple[str, ...] = ()


_OPERATIONS: Final[Mapping[str, _Operation]] = {
    "wait_threads": _Operation(operations.wait_threads, ("thread_ids",), ("timeout_s", "mode")),
    "cancel_thread": _Operation(operations.cancel_thread),
    "kill_thread": _Operation(operations.kill_thread),
    "get_status": _Operation(operations.get_status),
    "list_active": _Operation(operations.list_active, ()),
    "aggregate_results": _Operation(operations.aggregate_results, ("thread_ids",)),
    "get_chain": _Operation(operations.get_chain),
    "chain_search": _Operation(
        operations.chain_search, ("query",), ("thread_id", "search_type", "max_results")
    ),
    "read_transcript": _Operation(operations.read_transcript, may_have=("tail_lines", "types")),
    "resume_thread": _Operation(operations.resume_thread, ("thread_id", "message")),
    "handoff_thread": _Operation(operations.handoff_thread),
}

_DESCRIPTION: Final = (
    "Manage the threads that you have started: wait for them, see their status, read their "
    "results, stop them, resume them. It reaches your own threads and those below them."
)

PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "operation": {
            "type": "string",
            "enum": list(_OPERATIONS),
            "description": "wait_threads and aggregate_results take thread_ids; list_active takes "
            "nothing; chain_search takes query; resume_thread takes thread_id and message; the "
            "others take thread_id.",
        },
        "thread_id": {
            "type": "string",
            "minLength": 1,
            "maxLength": 512,
            "description": "One thread. chain_search searches your own chain without it.",
        },
        "thread_ids": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 512},
            "minItems": 1,
            "maxItems": MAX_THREAD_IDS,
            "description": "Several threads.",
        },
        "timeout_s": {
            "type": "number",
            "minimum": 0,
            "maximum": int(MAX_WAIT_S),
            "default": 600,
            "description": "wait_threads: seconds to wait at most.",
        },
        "mode": {
            "type": "string",
            "enum": ["all", "any"],
            "default": "all",
            "description": "wait_threads: wait for all, or for the first one.",
        },
        "query": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_QUERY_CHARS,
            "description": "chain_search: what to find in the transcripts.",
        },
        "search_type": {
            "type": "string",
            "enum": ["text", "regex"],
            "default": "text",
            "description": "chain_search: a text in any case, or a regular expression.",
        },
        "max_results": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_RESULTS,
            "default": MAX_RESULTS,
            "description": "chain_search: the most records to find.",
        },
        "tail_lines": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_TAIL_LINES,
            "default": 50,
            "description": "read_transcript: how many of the last records.",
        },
        "types": {
            "type": "array",
            "items": {"type": "string", "maxLength": 64},
            "minItems": 1,
            "maxItems": 50,
            "description": "read_transcript: only records of these types, such as cognition_out.",
        },
        "message": {
            "type": "string",
            "minLength": 1,
            "maxLength": 100_000,
            "description": "resume_thread: the message to the thread's model.",
        },
    },
    "required": ["operation"],
    "additionalProperties": False,
}
"""The JSON Schema of the tool's parameters."""


@frozen
class Orchestrator:
    """The operations of the tool `tool:rye/agent/threads/orchestrator`."""

    store: Callable[[], ThreadStore]
    control: "ThreadService"

    @cached_property
    def _schema(self) -> SchemaValidator:
        return SchemaValidator(json.dumps(PARAMETERS))

    async def perform(self, parameters: Mapping[str, Any], ctx: CallContext) -> Document:
        """Perform one operation on behalf of a thread, or of the host.

        The thread is the context's `budget_account`; the host has neither an account nor
        capabilities.

        Returns:
            A JSON-ready object. `success` is False, with `error` and `error_type`, where the
            operation was refused or has failed.

        Raises:
            InvalidParameters: They don't fit the schema, or lack one that the operation needs.
        """
        given = await _checked(parameters, self._schema)
        try:
            if ctx.budget_account is None and ctx.capabilities is not None:
                raise InputError(
                    "Only a thread or the host may manage threads.",
                    next_step="Run the agent in a thread: rye.start.",
                )
            store = await run_in_thread(self.store)
            document = await self._perform(store, given, ctx)
            await store.synced()
            return document
        except RyeError as error:
            return {"success": False, "error": str(error), "error_type": error.error_type}

    async def _perform(
        self, store: ThreadStore, given: Mapping[str, Any], ctx: CallContext
    ) -> Document:
        name, caller = given["operation"], ctx.budget_account
        one = _OPERATIONS[name]
        arguments = {each: given[each] for each in (*one.needs, *one.may_have) if each in given}
        if one.run in (operations.resume_thread, operations.handoff_thread):
            return await one.run(store, self.control, ctx=ctx, **arguments)
        if name == "chain_search" and arguments.setdefault("thread_id", caller) is None:
            raise InputError("chain_search needs a thread_id.", next_step="Name a thread.")
        return await one.run(store, caller=caller, **arguments)


async def _checked(parameters: Mapping[str, Any], schema: SchemaValidator) -> Mapping[str, Any]:
    """Check parameters against their schema; a null counts as a missing value."""
    given = {name: value for name, value in parameters.items() if value is not None}
    try:
        failures = await schema.failures_async(json.dumps(given))
        texts = [str(one) for one in failures]
    except (TypeError, ValueError, RecursionError):
        texts = ["they aren't JSON"]
    if not texts:
        operation = given["operation"]
        missing = [one for one in _OPERATIONS[operation].needs if one not in given]
        texts = [f"{name}: {operation} needs it" for name in missing]
    if texts:
        raise InvalidParameters(
            f"The parameters don't fit {TOOL_NAME}: {'; '.join(texts)}.",
            next_step=f"The operations are {', '.join(_OPERATIONS)}.",
            failures=tuple(texts),
        )
    return given


def orchestrator_tool(store: Callable[[], ThreadStore], control: "ThreadService") -> ToolDef:
    """Make the tool with which threads manage threads; see `Orchestrator.perform`."""
    orchestrator = Orchestrator(store, control)
    return ToolDef(
        name=TOOL_NAME,
        description=_DESCRIPTION,
        parameters=PARAMETERS,
        run=partial(_run, orchestrator),
        timeout_s=MAX_WAIT_S + 60,
        capability=CAPABILITY,
        source=f"tool:{ORCHESTRATOR}",
    )


async def _run(
    orchestrator: Orchestrator, arguments: Mapping[str, Any], ctx: ToolContext
) -> object:
    try:
        return await orchestrator.perform(arguments, ctx.call)
    except InvalidParameters as error:
        failures = error.failures
    raise invalid_arguments(TOOL_NAME, *failures)
