"""The context of calls: the caller, its bounds, and the ids of its calls. Pure.

A call id identifies one call of one item with one set of parameters at one place of a run. A call
that is repeated after the death of the host has the same id, so that a tool can recognise it.

Source: docs/concepts/recovery.md#once-and-no-more-than-once.
"""

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from attrs import evolve, field

from ryecore.convert.json_text import make_encoder
from ryecore.convert.lines import quoted
from ryecore.errors import InputError
from ryecore.frozen import frozen
from ryecore.lillux.digests import sha256_hex

if TYPE_CHECKING:
    from ryecore.policy.budget import CallBudget
    from ryecore.policy.execution import Execution
    from ryecore.policy.reports import Ask, ReportSink

__all__ = [
    "CALL_ID",
    "THREAD_ID",
    "THREAD_MARK",
    "CallContext",
    "CancelToken",
    "call_id_of",
    "check_labels",
    "place_id",
    "thread_mark",
    "thread_variables",
]

EventSink = Callable[[Mapping[str, object]], None]


class CancelToken:
    """The cancellation of calls. Any thread may cancel, and any signal's handler.

    Nothing undoes it.
    """

    def __init__(self) -> None:
        # A handler may interrupt its own thread in here at any line, so the lock lets a thread in
        # again, and each method leaves a list that is right whatever happens between its lines.
        self._lock = RLock()
        self._callbacks: list[Callable[[], None]] = []
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Return whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel, and call every registered function. Calling it again does nothing."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            callbacks = self._callbacks.copy()
            self._callbacks.clear()
        with ExitStack() as told:  # one that raises doesn't keep the others from being called
            for callback in reversed(callbacks):
                told.callback(callback)

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Register a function to call on cancellation, or call it at once after one.

        Returns:
            A function that unregisters it.
        """
        with self._lock:
            self._callbacks.append(callback)
            is_late = self._cancelled and self._forget(callback)
        if is_late:
            callback()

        def forget() -> None:
            self._forget(callback)

        return forget

    def _forget(self, callback: Callable[[], None]) -> bool:
        """Return whether it was still registered."""
        with self._lock, suppress(ValueError):
            self._callbacks.remove(callback)
            return True
        return False


_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
_LABEL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_MOST_LABELS: Final = 32
_MOST_LABEL_CHARS: Final = 256


def check_labels(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return a caller's labels, such as `{"tenant": "acme"}`; none by default.

    Raises:
        InputError: They are not a mapping of at most 32 names to texts of at most 256 characters.
    """
    if labels is None or labels is _NO_LABELS:
        return _NO_LABELS
    problem = ""
    if not isinstance(labels, Mapping):
        problem = f"labels is a {type(labels).__name__}, not a mapping"
    elif len(labels) > _MOST_LABELS:
        problem = f"{len(labels)} labels are more than {_MOST_LABELS}"
    else:
        for name, value in labels.items():
            if not isinstance(name, str) or not _LABEL_NAME.fullmatch(name):
                problem = f"{quoted(name)} isn't the name of a label"
            elif not isinstance(value, str) or not 0 < len(value) <= _MOST_LABEL_CHARS:
                problem = f"the label {name} isn't a text of 1 to {_MOST_LABEL_CHARS} characters"
            elif not value.isprintable():
                problem = f"the label {name} has a control character"
    if problem:
        raise InputError(
            f"labels: {problem}.",
            next_step='Pass names with letters, digits, "_", "." and "-", and texts, such as '
            '{"tenant": "acme"}.',
        )
    return MappingProxyType(dict(labels))


def _new_call_id() -> str:
    return os.urandom(16).hex()


@frozen(slots=False)
class CallContext:
    """The context of an action: its caller and its bounds.

    Attributes:
        capabilities: The caller's capabilities; None for the host itself, which may do everything.
        budget_account: The ledger account that pays: the calling thread or run; None for the host.
            What is started or launched for it becomes its child, bounded by its signed file;
            without that file the start is refused.
        depth: How many actions lie between this one and the host.
        deadline: The monotonic time in seconds (`time.monotonic`) when it must have ended.
        cancellation: Cancels the action from outside.
        call_id: The id of this call in events, from which a tool's `RYE_CALL_ID` is made. A run
            that repeats the call after a death uses the same one.
        parent: The call that this one is part of.
        event_sink: Gets each trace event as it happens; on a worker thread while a chain is made
            ready, on the event loop's own afterwards, never on both at once.
        labels: What the call is for, such as its tenant and user. Threads keep them, their children
            inherit them, and costs are summed by them.
        budget: What pays for the agents that a tool calls: the budget of the thread, node or
            session whose tool it is.
        caller: Who calls, for the audit log, where it is neither the host nor a thread: such as
            `mcp` or `agent:NAME`.
        execution: The execute that this call is, for the observer and the audit log; ryecore sets
            it.
        intent: Waits until the intent of this call is durable; ryecore sets it.
        report_sink: Gets the progress and the log messages of tools, which `event_sink` gets as
            events.
        ask: Answers the questions of tools, instead of the `ask` of `Rye.open`.

    Raises:
        InputError: The labels are not a mapping of names to texts.
    """

    capabilities: frozenset[str] | None = None
    budget_account: str | None = None
    depth: int = 0
    deadline: float | None = None
    cancellation: CancelToken | None = None
    call_id: str = field(factory=_new_call_id)
    parent: str | None = None
    event_sink: EventSink | None = None
    labels: Mapping[str, str] = field(default=_NO_LABELS, converter=check_labels)
    budget: "CallBudget | None" = None
    caller: str = ""
    execution: "Execution | None" = field(default=None, repr=False, eq=False)
    intent: Callable[[], Awaitable[None]] | None = field(default=None, repr=False, eq=False)
    report_sink: "ReportSink | None" = field(default=None, repr=False, eq=False)
    ask: "Ask | None" = field(default=None, repr=False, eq=False)

    async def begins(self) -> None:
        """Wait until its intent is durable, and record that it begins, before its first effect.

        Raises:
            RyeError: It may not begin: one of both failed.
        """
        if self.intent is not None:
            await self.intent()
        if self.execution is not None:
            await self.execution.begins()

    def labelled(self, labels: Mapping[str, str] | None) -> Self:
        """Return the same context with more labels; of those that it has already, none changes.

        Raises:
            InputError: The labels are not a mapping of names to texts.
        """
        if not labels:
            check_labels(labels)
            return self
        return evolve(self, labels={**check_labels(labels), **self.labels})

    def part(self, call_id: str | None = None) -> Self:
        """Return the context of a call that is part of this one.

        Args:
            call_id: Its id; by default one that no other call has.
        """
        return evolve(
            self,
            call_id=call_id or _new_call_id(),
            parent=self.call_id,
            execution=None,
            intent=None,
        )

    def for_host(self) -> "CallContext":
        """Return the same context with the capabilities of the host, which may do everything."""
        return CallContext(  # inlined: `evolve` takes three times as long
            None,
            self.budget_account,
            self.depth,
            self.deadline,
            self.cancellation,
            self.call_id,
            self.parent,
            self.event_sink,
            self.labels,
            self.budget,
            self.caller,
            None,
            None,
            self.report_sink,
            self.ask,
        )

    def called_by(self, caller: str) -> "CallContext":
        """Return the same context with another caller."""
        return CallContext(  # inlined, as above
            self.capabilities,
            self.budget_account,
            self.depth,
            self.deadline,
            self.cancellation,
            self.call_id,
            self.parent,
            self.event_sink,
            self.labels,
            self.budget,
            caller,
            self.execution,
            self.intent,
            self.report_sink,
            self.ask,
        )

    def as_call(self, call_id: str) -> "CallContext":
        """Return the same context with the id of another call."""
        return CallContext(  # inlined: `evolve` takes three times as long
            self.capabilities,
            self.budget_account,
            self.depth,
            self.deadline,
            self.cancellation,
            call_id,
            self.parent,
            self.event_sink,
            self.labels,
            self.budget,
            self.caller,
            None,
            None,
            self.report_sink,
            self.ask,
        )


_encode: Final = make_encoder(sort_keys=True, spaced=True, allow_nan=True, default=repr)
CALL_ID: Final = "RYE_CALL_ID"
"""The variable that holds a tool's call id."""

THREAD_ID: Final = "RYE_THREAD_ID"
"""The variable that holds the id of the thread or run on whose behalf a tool runs."""

THREAD_MARK: Final = "RYE_THREAD_MARK"
"""The variable by which a kill finds what a thread has started: see `thread_mark`."""


def place_id(*parts: object) -> str:
    """Return the id of a place in a run, such as the visit of a node: 32 hexadecimal digits.

    Its parts are the path to it, from the run down to the call: texts and numbers.
    """
    return _digest(parts)


def call_id_of(place: str, item_id: str, parameters: Mapping[str, object]) -> str:
    """Return the id of a call: the same for the same item and parameters at the same place.

    The place in the run is the `call_id` of its context.
    """
    return _digest([place, item_id, parameters])


def thread_mark(project: str, thread_id: str) -> str:
    """Return the mark of a thread's processes: two projects may have threads of one id.

    The project is its folder, with links resolved.
    """
    return _digest([project, thread_id])


def thread_variables(project: str, thread_id: str) -> dict[str, str]:
    """Return the variables of a process that runs on behalf of a thread; see `thread_mark`."""
    return {THREAD_ID: thread_id, THREAD_MARK: thread_mark(project, thread_id)}


def _digest(parts: Sequence[object]) -> str:
    return sha256_hex(_encode(parts).encode())[:32]
