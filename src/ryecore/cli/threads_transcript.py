"""The command `rye threads transcript`: a thread's records as lines for people."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click

from ryecore.actions.threads import ThreadReport, Threads
from ryecore.cli.opening import with_threads
from ryecore.cli.options import project_option
from ryecore.cli.output import errors_shown, show, show_piece, tell
from ryecore.display.text import Span, StyledText, exact_dollars, status_mark
from ryecore.errors import InputError
from ryecore.state.events import RunEvent
from ryecore.state.model import TERMINAL, RemotePlace, has_ended
from ryecore.threads.events import RECORD_TYPES
from ryecore.threads.thread import Thread

__all__ = ["record_lines", "transcript"]

_ENDS: Final = frozenset(f"thread_{status}" for status in TERMINAL)

_FOR_PROGRAMS: Final = frozenset({"token_delta", "model_call", "checkpoint"})
"""The types of records that are shown only if they are named."""


@click.command(short_help="Print a thread's messages and events.")
@click.argument("thread_id", metavar="ID")
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Continue until the thread, and those that continue it, have ended.",
)
@click.option(
    "--types", metavar="TYPE,...", help="Only these types of records, such as cognition_out,hook."
)
@project_option
@click.option("--json", "as_json", is_flag=True, help="Print each record as a line of JSON.")
def transcript(
    thread_id: str, follow: bool, types: str | None, project_path: str, as_json: bool
) -> None:
    """Print the messages and events of a directive's thread; `verify` proves them."""
    with errors_shown(as_json=as_json):
        wanted = _types(types, as_json=as_json)
        printer = _Printer(wanted, is_chosen=types is not None, follow=follow, as_json=as_json)

        async def print_it(threads: Threads) -> None:
            one: str | None = thread_id
            while one is not None:
                thread = await threads.thread(one)
                await printer.print(threads, thread)
                one = await thread.continuation() if follow else None

        with_threads(project_path, print_it)


class _Printer:
    """Prints the records of threads, one thread after the other.

    Args:
        wanted: The types of the records.
        is_chosen: Whether the caller named these types.
        follow: Whether to wait for the end of each thread.
        as_json: Whether programs read it, which get nothing but records.
    """

    def __init__(
        self, wanted: frozenset[str], *, is_chosen: bool, follow: bool, as_json: bool
    ) -> None:
        self._wanted = wanted
        self._is_chosen = is_chosen
        self._follow = follow
        self._as_json = as_json

    async def print(self, threads: Threads, thread: Thread) -> None:
        """Print the records of a thread, those of its node before its end."""
        place = (await thread.record()).place
        if place is not None and not (await threads.show(thread.thread_id)).ended:
            told = f"It runs on the node {place.remote}; its records are fetched at its end"
            _tell_command(f"{told}. Watch it: ", f"rye threads watch {thread.thread_id}")
        end: list[RunEvent] = []  # and what follows it
        async for event in thread.events(follow=self._follow):
            if end or event.type in _ENDS:
                end.append(event)
            else:
                self._show(event)
        is_end_shown = place is not None and await self._print_node(threads, thread, place)
        if not end and not self._as_json:
            end = _end_of(await threads.show(thread.thread_id))
        for event in end:
            if not is_end_shown or self._as_json or event.type not in _ENDS:
                self._show(event)

    async def _print_node(self, threads: Threads, thread: Thread, place: RemotePlace) -> bool:
        """Print the records of a run on a node; return whether its end is among them."""
        last = ""
        events = await threads.node_events(thread.thread_id)
        if events and not self._as_json:
            text = StyledText()
            text.line(("on the node ", "dim"), place.remote, (f"  {place.node}", "id"))
            show(text)
        for event in events:
            last = event.type if event.type in _ENDS else last
            self._show(event)
        status = await thread.status()
        if not last and has_ended(status):
            told = f"No records of it have come from the node {place.remote}"
            command = f"rye threads transcript {thread.thread_id}"
            _tell_command(f"{told}. Ask for them again: ", command)
        return last == f"thread_{status}"

    def _show(self, event: RunEvent) -> None:
        if event.type not in self._wanted:
            return
        if self._as_json:
            show_piece(json.dumps(event.to_dict(), ensure_ascii=True) + "\n")
        elif self._is_chosen or not _is_unsent(event):  # what follows from it is shown
            lines = record_lines(event)
            if lines.lines:
                show(lines)


def _types(given: str | None, *, as_json: bool) -> frozenset[str]:
    """Return the wanted types of records; by default those of interest to people."""
    if given is None:
        return frozenset(RECORD_TYPES) - (frozenset() if as_json else _FOR_PROGRAMS)
    names = [one.strip() for one in given.split(",") if one.strip()]
    unknown = [one for one in names if one not in RECORD_TYPES]
    if unknown or not names:
        raise InputError(
            f"There are no records of the type {', '.join(unknown) or given!r}.",
            next_step=f"The types are {', '.join(RECORD_TYPES)}.",
        )
    return frozenset(names)


def _tell_command(told: str, command: str) -> None:
    """Print on the standard error why records are missing, and the command that helps."""
    text = StyledText()
    text.line((told, "dim"), command)
    tell(text)


def _end_of(report: ThreadReport) -> list[RunEvent]:
    """Return the end of a thread as an event, for a log that lacks it; none while it runs.

    A process that was killed writes no end, and who finds it dead can't always write to its log.
    """
    ended_at = report.record.completed_at
    if ended_at is None:
        return []
    payload = {"error": report.error} if report.error else {}
    at = datetime.fromisoformat(ended_at).timestamp()
    return [RunEvent(report.thread_id, at, f"thread_{report.status}", payload)]


def _is_unsent(event: RunEvent) -> bool:
    """Return whether a record says that a request was never sent, as the budget refused it."""
    return event.type == "model_call_end" and _was_refused(event.payload)


def _was_refused(payload: Mapping[str, Any]) -> bool:
    return payload.get("outcome") == "refused" and payload.get("mark") == "freed"


# A record as lines


_MAX_LINES: Final = 12
_MAX_CHARS: Final = 400
_MAX_SPEND: Final = 10**24
"""The most microcents that are shown; a node's record can name any number."""
_INDENT: Final = "           "


def record_lines(event: RunEvent) -> StyledText:
    """Render a record as lines: its time, its type, and the beginning of its text.

    Any content can be rendered; none raises an error.
    """
    text = StyledText()
    try:
        when = datetime.fromtimestamp(event.timestamp).strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a node's record can name any time
        when = "--:--:--"
    head, body = _RENDERERS.get(event.type, _any)(event.payload, event.type)
    text.line((f"{when}  ", "dim"), *head)
    lines = body.splitlines()
    for line in lines[:_MAX_LINES]:
        text.line(_INDENT, _cut(line))
    if len(lines) > _MAX_LINES:
        text.line(_INDENT, (f"… {len(lines) - _MAX_LINES} more lines", "dim"))
    return text


_Rendered = tuple[Sequence[Span], str]
"""The first line of a record, and its text."""


def _started(payload: Mapping[str, Any], _: str) -> _Rendered:
    limits = payload.get("limits")
    limits = limits if isinstance(limits, Mapping) else {}
    shown = ", ".join(
        f"{name} {round(value, 6 if name == 'spend' else 2):,}"
        for name, value in limits.items()
        if isinstance(value, int | float)
    )
    head = [("▸ started ", "id"), (_text(payload.get("directive")), "strong")]
    model = payload.get("model")  # None for a run on a node, whose model that one chooses
    about = [] if model is None else [(f"  {_text(model)}", "dim")]
    return [*head, *about], f"limits: {shown}" if shown else ""


def _resumed(payload: Mapping[str, Any], kind: str) -> _Rendered:
    verb = "forked from" if kind == "thread_forked" else "continues from"
    at = f" after turn {_text(payload.get('turn'))}" if kind == "thread_forked" else ""
    return [(f"▸ {verb} ", "id"), (_text(payload.get("from")), "id"), (at, "dim")], ""


def _model_input(payload: Mapping[str, Any], _: str) -> _Rendered:
    return [("input to the model", "strong")], _text_of_parts(payload.get("parts"))


def _model_output(payload: Mapping[str, Any], _: str) -> _Rendered:
    parts = payload.get("parts")
    parts = parts if isinstance(parts, list) else []
    called = [one for one in parts if isinstance(one, Mapping) and one.get("type") == "tool_call"]
    names = ", ".join(_text(one.get("name")) for one in called)
    head: list[Span] = [("model", "strong"), (f"  turn {_text(payload.get('turn'))}", "dim")]
    return [*head, (f"  calls {names}" if names else "", "")], _text_of_parts(parts)


def _cost(payload: Mapping[str, Any], _: str) -> _Rendered:
    outcome = _text(payload.get("outcome"))
    if _was_refused(payload):
        why = "not sent: its longest possible answer didn't fit into what is left"
        return [(f"cost   {why}", "dim")], ""
    style = "dim" if outcome == "success" else "warn"
    spend = payload.get("spend_microcents")
    money = exact_dollars(spend) if isinstance(spend, int) and abs(spend) <= _MAX_SPEND else ""
    tokens = f"{_text(payload.get('input_tokens'))} in, {_text(payload.get('output_tokens'))} out"
    return [
        (f"cost   {tokens}  {money}  {_text(payload.get('mark'))}", "dim"),
        (f"  {outcome}", style),
    ], ""


def _call(payload: Mapping[str, Any], _: str) -> _Rendered:
    return [("→ ", "id"), (_text(payload.get("tool")), "strong")], _text(payload.get("input"))


def _result(payload: Mapping[str, Any], _: str) -> _Rendered:
    failed = payload.get("is_error") is True
    mark: Span = status_mark("problem") if failed else ("← ", "good")
    return [mark, (_text(payload.get("tool")), "strong")], _text_of_parts(payload.get("content"))


def _returned(payload: Mapping[str, Any], _: str) -> _Rendered:
    return [("✓ returned", "good")], _text(payload.get("outputs"))


def _hook(payload: Mapping[str, Any], _: str) -> _Rendered:
    well = payload.get("ok") is True
    control = f"  {_text(payload.get('control'))}" if payload.get("control") else ""
    return [
        ("hook ", "dim"),
        (_text(payload.get("id")), "" if well else "bad"),
        (f"  on {_text(payload.get('event'))}{control}", "dim"),
    ], _text(payload.get("error") or "")


def _limit(payload: Mapping[str, Any], _: str) -> _Rendered:
    used = f"{_text(payload.get('current_value'))} of {_text(payload.get('current_max'))}"
    return [(f"■ {_text(payload.get('limit_code'))}", "warn"), (f"  {used}", "")], ""


def _compacted(payload: Mapping[str, Any], _: str) -> _Rendered:
    tokens = f"{_text(payload.get('tokens'))} tokens to {_text(payload.get('tokens_after'))}"
    head: list[Span] = [("summary", "strong"), (f"  turn {_text(payload.get('turn'))}", "dim")]
    facts = f"  {_text(payload.get('replaced'))} messages, {tokens}"
    return [*head, (facts, "")], _text_of_parts(payload.get("parts"))


def _ended(payload: Mapping[str, Any], kind: str) -> _Rendered:
    status = kind.removeprefix("thread_")
    icon, style = status_mark(status)
    return [(f"{icon}{status}", style)], _text(payload.get("error") or "")


def _any(payload: Mapping[str, Any], kind: str) -> _Rendered:
    facts = ", ".join(f"{name} {_cut(_text(value), 60)}" for name, value in payload.items())
    return [(f"{kind.replace('_', ' ')}", "dim"), (f"  {facts}", "dim")], ""


_RENDERERS: Final[Mapping[str, Callable[[Mapping[str, Any], str], _Rendered]]] = {
    "thread_started": _started,
    "thread_resumed": _resumed,
    "thread_forked": _resumed,
    "cognition_in": _model_input,
    "cognition_out": _model_output,
    "model_call_end": _cost,
    "tool_call_start": _call,
    "tool_call_result": _result,
    "directive_return": _returned,
    "hook": _hook,
    "limit_reached": _limit,
    "conversation_compacted": _compacted,
    **dict.fromkeys(_ENDS, _ended),
}


def _text_of_parts(parts: object) -> str:
    """Return the text of parts."""
    texts: list[str] = []
    for part in parts if isinstance(parts, list) else ():
        if not isinstance(part, Mapping):
            continue
        if part.get("type") == "text":
            texts.append(_text(part.get("text")))
        elif part.get("type") == "media":
            texts.append(f"[{_text(part.get('media_type'))}: {_text(part.get('handle'))}]")
    return "\n".join(texts)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _cut(line: str, most: int = _MAX_CHARS) -> str:
    return line if len(line) <= most else line[: most - 1] + "…"
