"""What a tool says while it runs: its progress, its log messages, and its questions. Pure.

The kinds of questions and the levels of logs are those of MCP.

Source: docs/reference/call-channel.md.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, TypeGuard, get_args

from attrs import field

from ryecore.frozen import frozen
from ryecore.policy.permissions import AskKind, allows, capability_to_ask

if TYPE_CHECKING:
    from ryecore.policy.context import CallContext

__all__ = [
    "LOG_LEVELS",
    "REPORT_TYPES",
    "Ask",
    "LogLevel",
    "ReportAllowance",
    "ReportSink",
    "ToolCaller",
    "ToolLog",
    "ToolProgress",
    "ToolQuestion",
    "ToolReport",
    "event_of",
    "report_of",
    "run_event_of",
    "send_report",
    "why_not_asked",
]

_REPORTS_AT_ONCE: Final = 200
_REPORTS_A_SECOND: Final = 50
_MAX_ITEM_CHARS: Final = 512
_MAX_MESSAGE_CHARS: Final = 1000

_logger: Final = logging.getLogger(__name__)

LogLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]
"""How important a log message is, the least important first. Source: RFC 5424, section 6.2.1."""

LOG_LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
"""The levels of log messages, the least important first."""


@frozen
class ToolProgress:
    """How far a tool's call is.

    Attributes:
        item_id: The tool.
        call_id: The call, as its `CallContext` names it.
        progress: How much is done, in the tool's own unit.
        total: How much there is to do; None where the tool doesn't know.
        message: What it does, for people; untrusted text.
    """

    item_id: str
    call_id: str
    progress: float
    total: float | None = None
    message: str = ""


@frozen
class ToolLog:
    """A log message of a tool's call.

    Attributes:
        item_id: The tool.
        call_id: The call, as its `CallContext` names it.
        level: How important it is.
        data: The message: text, or any other JSON value; untrusted.
        logger: The part of the tool that it is from; empty for the tool itself.
    """

    item_id: str
    call_id: str
    level: LogLevel
    data: object
    logger: str = ""


ToolReport: TypeAlias = ToolProgress | ToolLog

ReportSink: TypeAlias = Callable[[ToolReport], None]
"""Gets each report of a tool as it comes, on the event loop's thread; it must not block."""


@frozen
class ToolQuestion:
    """A question of a tool to its caller.

    Attributes:
        item_id: The tool.
        call_id: The call, as its `CallContext` names it.
        key: The question's id, by which no other open question of the call goes.
        kind: To whom it goes: `elicit`, `sample` or `roots`.
        params: What is asked, with the keys that MCP has for it; untrusted, and not checked yet.
    """

    item_id: str
    call_id: str
    key: str
    kind: AskKind
    params: Mapping[str, object] = field(factory=dict, repr=False)


class Ask(Protocol):
    """Answers the questions of tools; the host gives it to `Rye.open`, or to one call."""

    async def __call__(self, question: ToolQuestion, /) -> Mapping[str, object]:
        """Return the answer, with the keys that MCP has for it.

        It is cancelled when the call ends. A `RyeError` is a refusal, whose text the tool gets.
        """
        ...


def why_not_asked(
    kind: AskKind,
    item_id: str,
    declared: Iterable[str],
    capabilities: Iterable[str] | None,
) -> str | None:
    """Return why a tool's question is refused, for the tool; None where it may be asked.

    Args:
        kind: The kind of the question.
        item_id: The tool's id, without a kind.
        declared: What its signed file says that it may ask.
        capabilities: The caller's capabilities; None for the host itself.
    """
    if kind not in declared:
        return f"The signed file of {item_id} doesn't declare {kind} in may_ask."
    needed = capability_to_ask(kind, item_id)
    if capabilities is not None and not allows(capabilities, needed):
        return f"The caller lacks the capability {needed}."
    return None


def event_of(report: ToolReport) -> Mapping[str, object]:
    """Return a report as a trace event."""
    event: dict[str, object] = {"item_id": report.item_id, "call_id": report.call_id}
    if isinstance(report, ToolLog):
        event |= {"step": "log", "level": report.level, "data": report.data}
        return event | ({"logger": report.logger} if report.logger else {})
    event |= {"step": "progress", "progress": report.progress}
    if report.total is not None:
        event["total"] = report.total
    return event | ({"message": report.message} if report.message else {})


_EVENT_TYPES: Final = {"progress": "tool_progress", "log": "tool_log"}
REPORT_TYPES: Final = frozenset(_EVENT_TYPES.values())
"""The types of a run's live events that are reports of its tools."""


def run_event_of(report: ToolReport) -> tuple[str, Mapping[str, object]]:
    """Return a report as a live event of a run: its type, and its payload."""
    event = {**event_of(report)}
    return _EVENT_TYPES[str(event.pop("step"))], event


def report_of(kind: str, payload: object, call_id: str) -> ToolReport | None:
    """Read a report from a live event of a run on another machine; None for what isn't one.

    Args:
        kind: The type of the event.
        payload: Its payload, which isn't trusted.
        call_id: The call here.
    """
    if kind not in REPORT_TYPES or not isinstance(payload, Mapping):
        return None
    item_id, message = payload.get("item_id"), payload.get("message", "")
    if not isinstance(item_id, str) or not isinstance(message, str):
        return None
    item_id = item_id[:_MAX_ITEM_CHARS]
    if kind == "tool_log":
        level, logger = payload.get("level"), payload.get("logger", "")
        if level not in LOG_LEVELS or not isinstance(logger, str):
            return None
        return ToolLog(item_id, call_id, level, payload.get("data"), logger[:_MAX_MESSAGE_CHARS])
    progress, total = payload.get("progress"), payload.get("total")
    if not _is_amount(progress) or not (total is None or _is_amount(total)):
        return None
    return ToolProgress(item_id, call_id, progress, total, message[:_MAX_MESSAGE_CHARS])


def _is_amount(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)


def send_report(ctx: "CallContext", report: ToolReport) -> None:
    """Pass a report on to the sinks of a call. One that fails is logged."""
    try:
        if ctx.report_sink is not None:
            ctx.report_sink(report)
        if ctx.event_sink is not None:
            ctx.event_sink(event_of(report))
    except Exception:
        _logger.exception("A sink of the reports of %s failed", report.item_id)


class ReportAllowance:
    """How many reports of a call may be passed on: some at once, and then so many a second.

    Args:
        now_s: The time at which the call begins, in seconds.
    """

    def __init__(self, now_s: float) -> None:
        self._left: float = _REPORTS_AT_ONCE
        self._since_s = now_s

    def take(self, now_s: float) -> bool:
        """Return whether one more may be passed on now."""
        gained = (now_s - self._since_s) * _REPORTS_A_SECOND
        self._left, self._since_s = min(_REPORTS_AT_ONCE, self._left + gained), now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


@frozen
class ToolCaller:
    """The caller of a tool, who gets its reports and answers its questions.

    Attributes:
        item_id: The tool's id, without a kind.
        ctx: The call.
        ask: Answers questions; None where nobody does.
    """

    item_id: str
    ctx: "CallContext"
    ask: Ask | None = None

    @property
    def wants_reports(self) -> bool:
        """Whether anybody gets reports."""
        return self.ctx.report_sink is not None or self.ctx.event_sink is not None

    def may_ask(self, kind: AskKind) -> bool:
        """Return whether a question of a kind may be asked, if a signed file declares it."""
        is_allowed = why_not_asked(kind, self.item_id, (kind,), self.ctx.capabilities) is None
        return self.ask is not None and is_allowed

    def progress(self, progress: float, total: float | None, message: str) -> None:
        """Pass on how far the call is."""
        self.send(ToolProgress(f"tool:{self.item_id}", self.ctx.call_id, progress, total, message))

    def log(self, level: LogLevel, data: object, logger: str) -> None:
        """Pass on a log message."""
        self.send(ToolLog(f"tool:{self.item_id}", self.ctx.call_id, level, data, logger))

    def send(self, report: ToolReport) -> None:
        """Pass on a report."""
        send_report(self.ctx, report)

    async def answer(
        self, kind: AskKind, key: str, params: Mapping[str, object]
    ) -> Mapping[str, object]:
        """Return the answer to a question; a `RyeError` is a refusal."""
        if self.ask is None or not self.may_ask(kind):
            raise AssertionError("only what may be asked is offered")
        ref, call_id = f"tool:{self.item_id}", self.ctx.call_id
        return await self.ask(ToolQuestion(ref, call_id, key, kind, params))
