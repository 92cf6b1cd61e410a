"""The command `rye threads transcript`: a thread's records as lines for people."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click

from ryecore.actions.threads import Threads
from ryecore.cli.opening import with_threads
from ryecore.cli.options import project_option
from ryecore.cli.output import errors_shown, show, show_piece
from ryecore.display.status import status_mark
from ryecore.display.text import Span, StyledText, exact_dollars
from ryecore.errors import InputError
from ryecore.threads.events import RECORD_TYPES, ThreadEvent

__all__ = ["record_lines", "transcript"]

_FOR_PROGRAMS: Final = frozenset({"token_delta", "model_call", "checkpoint"})
"""The types of records that are shown only if they are named."""


@click.command(short_help="Print a thread's messages and events.")
@click.argument("thread_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Continue until the thread has ended.")
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

        async def print_it(threads: Threads) -> None:
            thread = await threads.thread(thread_id)
            async for event in thread.events(follow=follow):
                if event.type not in wanted:
                    continue
                if as_json:
                    show_piece(json.dumps(event.to_dict(), ensure_ascii=True) + "\n")
                    continue
                lines = record_lines(event)
                if lines.lines:
                    show(lines)

        with_threads(project_path, print_it)


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


# A record as lines


_MAX_LINES: Final = 12
_MAX_CHARS: Final = 400
_INDENT: Final = "           "


def record_lines(event: ThreadEvent) -> StyledText:
    """Render a record as lines: its time, its type, and the beginning of its text.

    Any content can be rendered; none raises an error.
    """
    text, said = StyledText(), event.payload
    when = datetime.fromtimestamp(event.timestamp).strftime("%H:%M:%S")
    head, body = _SHOWN.get(event.type, _any)(said, event.type)
    text.line((f"{when}  ", "dim"), *head)
    lines = body.splitlines()
    for line in lines[:_MAX_LINES]:
        text.line(_INDENT, _cut(line))
    if len(lines) > _MAX_LINES:
        text.line(_INDENT, (f"… {len(lines) - _MAX_LINES} more lines", "dim"))
    return text


_Shown = tuple[Sequence[Span], str]


def _started(said: Mapping[str, Any], _: str) -> _Shown:
    limits = said.get("limits")
    limits = limits if isinstance(limits, Mapping) else {}
    shown = ", ".join(
        f"{name} {round(value, 6):,}"
        for name, value in limits.items()
        if isinstance(value, int | float)
    )
    head = [("▸ started ", "id"), (_text(said.get("directive")), "strong")]
    return [*head, (f"  {_text(said.get('model'))}", "dim")], f"limits: {shown}" if shown else ""


def _going_on(said: Mapping[str, Any], kind: str) -> _Shown:
    verb = "forked from" if kind == "thread_forked" else "continues from"
    at = f" after turn {_text(said.get('turn'))}" if kind == "thread_forked" else ""
    return [(f"▸ {verb} ", "id"), (_text(said.get("from")), "id"), (at, "dim")], ""


def _told(said: Mapping[str, Any], _: str) -> _Shown:
    return [("told the model", "strong")], _words(said.get("parts"))


def _answered(said: Mapping[str, Any], _: str) -> _Shown:
    parts = said.get("parts")
    parts = parts if isinstance(parts, list) else []
    called = [one for one in parts if isinstance(one, Mapping) and one.get("type") == "tool_call"]
    names = ", ".join(_text(one.get("name")) for one in called)
    head: list[Span] = [("model", "strong"), (f"  turn {_text(said.get('turn'))}", "dim")]
    return [*head, (f"  calls {names}" if names else "", "")], _words(parts)


def _cost(said: Mapping[str, Any], _: str) -> _Shown:
    outcome = _text(said.get("outcome"))
    style = "dim" if outcome == "success" else "warn"
    spend = said.get("spend_microcents")
    money = exact_dollars(spend) if isinstance(spend, int) else ""
    tokens = f"{_text(said.get('input_tokens'))} in, {_text(said.get('output_tokens'))} out"
    return [
        (f"cost   {tokens}  {money}  {_text(said.get('mark'))}", "dim"),
        (f"  {outcome}", style),
    ], ""


def _call(said: Mapping[str, Any], _: str) -> _Shown:
    return [("→ ", "id"), (_text(said.get("tool")), "strong")], _text(said.get("input"))


def _result(said: Mapping[str, Any], _: str) -> _Shown:
    failed = said.get("is_error") is True
    mark: Span = status_mark("problem") if failed else ("← ", "good")
    return [mark, (_text(said.get("tool")), "strong")], _words(said.get("content"))


def _returned(said: Mapping[str, Any], _: str) -> _Shown:
    return [("✓ returned", "good")], _text(said.get("outputs"))


def _hook(said: Mapping[str, Any], _: str) -> _Shown:
    well = said.get("ok") is True
    control = f"  {_text(said.get('control'))}" if said.get("control") else ""
    return [
        ("hook ", "dim"),
        (_text(said.get("id")), "" if well else "bad"),
        (f"  on {_text(said.get('event'))}{control}", "dim"),
    ], _text(said.get("error") or "")


def _limit(said: Mapping[str, Any], _: str) -> _Shown:
    used = f"{_text(said.get('current_value'))} of {_text(said.get('current_max'))}"
    return [(f"■ {_text(said.get('limit_code'))}", "warn"), (f"  {used}", "")], ""


def _ended(said: Mapping[str, Any], kind: str) -> _Shown:
    status = kind.removeprefix("thread_")
    well = status in ("completed", "continued")
    style = "good" if well else "bad"
    return [(f"{'✓' if well else '✗'} {status}", style)], _text(said.get("error") or "")


def _any(said: Mapping[str, Any], kind: str) -> _Shown:
    facts = ", ".join(f"{name} {_cut(_text(value), 60)}" for name, value in said.items())
    return [(f"{kind.replace('_', ' ')}", "dim"), (f"  {facts}", "dim")], ""


_SHOWN: Final[Mapping[str, Callable[[Mapping[str, Any], str], _Shown]]] = {
    "thread_started": _started,
    "thread_resumed": _going_on,
    "thread_forked": _going_on,
    "cognition_in": _told,
    "cognition_out": _answered,
    "model_call_end": _cost,
    "tool_call_start": _call,
    "tool_call_result": _result,
    "directive_return": _returned,
    "hook": _hook,
    "limit_reached": _limit,
    **{
        f"thread_{status}": _ended
        for status in ("completed", "error", "cancelled", "continued", "killed")
    },
}


def _words(parts: object) -> str:
    """Return the text of parts."""
    said: list[str] = []
    for part in parts if isinstance(parts, list) else ():
        if not isinstance(part, Mapping):
            continue
        if part.get("type") == "text":
            said.append(_text(part.get("text")))
        elif part.get("type") == "media":
            said.append(f"[{_text(part.get('media_type'))}: {_text(part.get('handle'))}]")
    return "\n".join(said)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _cut(line: str, most: int = _MAX_CHARS) -> str:
    return line if len(line) <= most else line[: most - 1] + "…"
