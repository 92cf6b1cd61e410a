"""The call of a granted tool, from its arguments to its result."""

import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import anyio

from ryecore.errors import (
    HostCapabilityMissing,
    ToolCallError,
    ToolCancelledError,
    ToolExecutionError,
    ToolPolicyError,
    UnknownToolError,
)
from ryecore.llm.parts import MediaPart, ResultContent, TextPart, ToolCallPart, ToolResultPart
from ryecore.policy import CallContext, allows
from ryecore.policy.cancelling import canceller_of, is_stray, watched
from ryecore.tools.approval import require_approval
from ryecore.tools.arguments import check_arguments, parse_arguments
from ryecore.tools.context import ToolContext, ToolLimits
from ryecore.tools.definition import ToolDef
from ryecore.tools.failures import as_tool_error, invalid_arguments, quoted
from ryecore.tools.functions import FunctionRunner
from ryecore.tools.policy import apply_policy
from ryecore.tools.results import (
    OnToolEvent,
    ToolCalled,
    ToolOutcome,
    ToolReturned,
    as_text,
    has_media,
    preview,
    with_media,
)
from ryecore.tools.store import ResultStore

__all__ = ["CallScope", "NoScope", "granted", "serve"]

T = TypeVar("T")


def seconds_left(call: CallContext) -> float:
    """Return the seconds that a call has left."""
    return math.inf if call.deadline is None else call.deadline - time.monotonic()


class CallScope:
    """A scope that ends after a time, or when a call's token is cancelled from any thread.

    `timeout_s` is infinite for no limit.
    """

    __slots__ = ("_call", "_forget", "_scope", "_timeout_s")

    def __init__(self, call: CallContext, timeout_s: float) -> None:
        self._call = call
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        self._scope = anyio.move_on_after(None)
        self._scope.__enter__()
        self._forget: Callable[[], None] | None = None
        token = self._call.cancellation
        if token is not None:
            self._forget = token.on_cancel(canceller_of(self._scope))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._forget is not None:
            self._forget()
        return bool(self._scope.__exit__(kind, error, traceback))

    def wait_for(self, awaited: Awaitable[T]) -> Awaitable[T]:
        """Await something within the time, which counts from when it first has to wait.

        A timer costs as much as all else that a call of a tool costs, and most never wait.
        """
        return watched(awaited, self._on_wait)

    @property
    def is_ended(self) -> bool:
        """Whether its time is up, or its token was cancelled."""
        return self._scope.cancel_called

    @property
    def is_cut(self) -> bool:
        """Whether it has interrupted its body."""
        return self._scope.cancelled_caught

    def _on_wait(self) -> None:
        if self._timeout_s != math.inf:
            self._scope.deadline = anyio.current_time() + self._timeout_s
            self._timeout_s = math.inf


class NoScope:
    """A stand-in for `CallScope` around a call that never waits, and so can't be cancelled."""

    __slots__ = ()

    is_ended: Final = False
    is_cut: Final = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def wait_for(self, awaited: Awaitable[T]) -> Awaitable[T]:
        """Await something that never waits."""
        return awaited


NO_SCOPE: Final = NoScope()


_NESTED: Final = (dict, list)


async def serve(
    tool: ToolDef,
    call: ToolCallPart,
    ctx: ToolContext,
    limits: ToolLimits,
    on_event: OnToolEvent | None,
) -> ToolOutcome:
    """Serve a call; see `ToolRegistry.dispatch`."""
    text = call.arguments_json
    sent = parse_arguments(tool.name, text, limits.max_argument_bytes)
    arguments = await _checked(tool, text, sent)
    reason = "This tool always asks." if tool.needs_approval else ""
    if tool.policy.arguments:
        arguments, question = apply_policy(tool.name, tool.policy, arguments, ctx)
        reason = question or reason
    if reason:
        await _approved(tool, call, arguments, reason, ctx)
    if on_event is None:
        return await _served(tool, call, arguments, ctx, limits)
    on_event(ToolCalled(tool.name, _shown_input(tool, text, sent, limits)))
    try:
        record = ctx.recorded
        if tool.read_only and not reason and ctx.recorded_soon is not None:
            record = ctx.recorded_soon
        if record is not None:
            await record()
        outcome = await _served(tool, call, arguments, ctx, limits)
    except BaseException as error:
        said = str(error) if isinstance(error, ToolCallError) else "It was cancelled."
        on_event(ToolReturned(tool.name, False, _shortened(said, limits)))
        raise
    on_event(ToolReturned(tool.name, True, _summary(outcome.part, limits)))
    return outcome


async def _checked(tool: ToolDef, text: str, sent: dict[str, Any]) -> Mapping[str, Any]:
    """Return the checked arguments, with the arguments that the host sets."""
    if not tool.config:
        await check_arguments(tool.name, text, tool.schema)
        return sent
    merged = ""
    try:
        merged = json.dumps({**sent, **tool.config})
        fits = not await tool.schema.failures_async(merged)
    except (ValueError, RecursionError):  # such as half a character, or a number beyond any
        fits = False
    if not fits:
        # Problems name only the model's own arguments; it may not see those of the host.
        await check_arguments(tool.name, text, tool.shown_schema)
        raise invalid_arguments(
            tool.name, "they don't fit together with the arguments that the host sets"
        )
    arguments: dict[str, Any] = json.loads(merged)  # what the host set is not the tool's to change
    return arguments


async def _approved(
    tool: ToolDef, call: ToolCallPart, arguments: Mapping[str, Any], reason: str, ctx: ToolContext
) -> None:
    scope = CallScope(ctx.call, seconds_left(ctx.call))
    with scope:
        await scope.wait_for(require_approval(tool, call, arguments, reason, ctx))
    if scope.is_cut:
        raise _ended_early(tool, ctx, "was not approved in time")


async def _served(
    tool: ToolDef,
    call: ToolCallPart,
    arguments: Mapping[str, Any],
    ctx: ToolContext,
    limits: ToolLimits,
) -> ToolOutcome:
    started = time.perf_counter()
    value = await _run(tool, arguments, ctx, limits)
    duration_ms = (time.perf_counter() - started) * 1000
    plain = None if has_media(value) else as_text(tool.name, value, limits)
    media: tuple[MediaPart, ...] = ()
    if plain is None:
        text, media = await anyio.to_thread.run_sync(
            with_media, tool.name, value, ctx.media, limits
        )
    else:
        text = plain
    handle = None
    if ctx.present is not None:
        text, handle = await ctx.present(tool.name, call.call_id, text)
    elif len(text) > limits.preview_chars:
        if ctx.results is not None:
            handle = await anyio.to_thread.run_sync(_keep, ctx.results, text)
        text = preview(text, limits.preview_chars, handle)
    content: tuple[ResultContent, ...] = (TextPart(text),)
    if media:
        content = (*content, *media) if text else media
    part = ToolResultPart(call.call_id, tool.name, content, False, tool.untrusted)
    return ToolOutcome(part, value, handle, duration_ms)


async def _run(
    tool: ToolDef, arguments: Mapping[str, Any], ctx: ToolContext, limits: ToolLimits
) -> object:
    timeout_s = limits.timeout_s if tool.timeout_s is None else tool.timeout_s
    token = ctx.call.cancellation
    if token is not None and token.cancelled:
        raise _ended_early(tool, ctx, "was cancelled")
    if ctx.call.deadline is not None:
        timeout_s = min(timeout_s, seconds_left(ctx.call))
        if timeout_s <= 0:
            raise _ended_early(tool, ctx, "did not run, because its caller's time is up")
    problem: ToolCallError | None = None
    never_waits = isinstance(tool.run, FunctionRunner) and tool.run.never_waits
    scope = NO_SCOPE if never_waits else CallScope(ctx.call, timeout_s)
    with scope:
        try:
            return await scope.wait_for(tool.run(arguments, ctx))
        except Exception as error:  # a tool may raise anything
            problem = as_tool_error(error, tool.name, tool.secrets)
        except BaseException as error:
            if not is_stray(error):
                raise
    # Nothing is raised from within a handler: an error would drag along what it was raised in.
    if scope.is_ended or (token is not None and token.cancelled):
        problem = _ended_early(tool, ctx, f"did not end within {timeout_s:.6g} s and was stopped")
    raise problem or ToolExecutionError(
        f"The tool {tool.name} was cancelled from inside.", tool_name=tool.name
    )


def _ended_early(tool: ToolDef, ctx: ToolContext, how: str) -> ToolCallError:
    """Return the error of an early end; a cancellation takes precedence over others."""
    token = ctx.call.cancellation
    if token is not None and token.cancelled:
        return ToolCancelledError(
            f"The call of the tool {tool.name} was cancelled.", tool_name=tool.name
        )
    return ToolExecutionError(f"The tool {tool.name} {how}.", tool_name=tool.name)


def _keep(store: ResultStore, text: str) -> str | None:
    """Store a text, and return its handle; None if it can't be stored."""
    try:
        return store.put(text.encode("utf-8", errors="replace"))
    except Exception:  # a host's own store, or a full disk
        return None


def _shown_input(
    tool: ToolDef, text: str, sent: dict[str, Any], limits: ToolLimits
) -> Mapping[str, Any] | str:
    if len(text) > limits.event_chars:
        return _shortened(text, limits)
    # The tool gets `sent` and may change it; listeners get the arguments as they were sent.
    for value in sent.values():
        if type(value) in _NESTED:
            sent = json.loads(text)
            break
    if tool.config:
        return {name: value for name, value in sent.items() if name not in tool.config}
    return sent.copy()


def _summary(part: ToolResultPart, limits: ToolLimits) -> str:
    first = part.content[0]
    if type(first) is TextPart and len(part.content) == 1:  # as most results are
        return _shortened(first.text, limits)
    words = [
        one.text[: limits.event_chars + 1]
        if type(one) is TextPart
        else f"[{one.media_type}, {one.size_bytes:,} bytes]"  # type: ignore[union-attr]
        for one in part.content[:10]
    ]
    text = words[0] if len(words) == 1 else " ".join(words)
    return _shortened(text, limits)


def _shortened(text: str, limits: ToolLimits) -> str:
    return text if len(text) <= limits.event_chars else f"{text[: limits.event_chars]}…"


_MAX_NEAR: Final = 5


def granted(tools: Mapping[str, ToolDef], name: str, ctx: ToolContext) -> ToolDef:
    """Return the tool with exactly this name, if it may be called.

    An UnknownToolError lists near names of tools that may be called.
    """
    tool = tools.get(name)
    if tool is None:
        raise _unknown(tools, name, ctx.grant)
    if ctx.grant is not None and name not in ctx.grant:
        raise ToolPolicyError(f"The tool {name} is not granted to this agent.", tool_name=name)
    if tool.capability is not None:
        held = ctx.call.capabilities
        if held is not None and not allows(held, tool.capability):
            raise ToolPolicyError(
                f"The caller lacks the capability {tool.capability}.",
                tool_name=name,
                capability=tool.capability,
            )
    if not tool.needs <= ctx.capabilities:
        missing = min(tool.needs - ctx.capabilities)
        raise HostCapabilityMissing(
            f"The tool {name} needs {missing!r}, which the host doesn't offer.",
            tool_name=name,
            capability=missing,
        )
    return tool


def _unknown(
    tools: Mapping[str, ToolDef], name: str, grant: frozenset[str] | None
) -> UnknownToolError:
    callable_names = sorted(tools if grant is None else grant & tools.keys())
    near = get_close_matches(name[:100], callable_names, n=_MAX_NEAR, cutoff=0.5)
    listed = near or callable_names[:_MAX_NEAR]
    return UnknownToolError(
        f"No tool is called {quoted(name)}.",
        next_step=f"Call one of: {', '.join(listed)}." if listed else "No tool may be called here.",
        tool_name=name[:100],
        known=tuple(callable_names),
    )
