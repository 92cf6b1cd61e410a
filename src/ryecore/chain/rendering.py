"""How results, chains and traces look: one renderer for terminal and notebook.

It reads the documents that models and MCP clients see, so whatever has that form can be shown.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ryecore.convert.money import read_usd
from ryecore.display.sanitize import shorten
from ryecore.display.text import Span, StyledText, brief, counted, dollars, status_mark

__all__ = ["render_chain", "render_directive", "render_error", "render_result", "render_trace"]

_MAX_DATA_LINES: Final = 40
_MAX_LINE: Final = 400


def render_result(document: Mapping[str, Any]) -> StyledText:
    """Show the response object of an execution."""
    text = StyledText()
    status = str(document.get("status"))
    mark, style = status_mark(status)
    metadata = document.get("metadata", {})
    duration_ms = metadata.get("duration_ms")
    text.line(
        (mark, style),
        (str(document.get("item_id", "")), "strong"),
        (f"  {status}", style),
        ("" if duration_ms is None else f"  {duration_ms} ms", "dim"),
    )
    error = str(document.get("error") or "").strip()
    for line in error.splitlines():
        text.line("  ", (line, "bad"))
    data = document.get("data")
    if error and isinstance(data, Mapping):
        text.next_step(data.get("next_step"))
    if data is not None:
        text.add(_render_data(data, said=error), "  ")
    for key, value in metadata.items():
        if key != "duration_ms":
            for line in f"{key.replace('_', ' ')}: {value}".splitlines():
                text.line((f"  {line}", "warn"))
    if "plan" in document:
        text.add(_render_plan(document["plan"]), "  ")
    if document.get("chain_elements"):
        text.add(render_chain(document["chain_elements"]), "  ")
    for linked in document.get("linked_items", ()):
        text.line(("  with ", "dim"), (str(linked["item_id"]), "id"), "  ", *_render_seal(linked))
    if document.get("trace"):
        text.line(("  trace", "dim"))
        text.add(render_trace(document["trace"]), "  ")
    return text


def _render_data(data: object, said: str) -> StyledText:
    """Show what a tool returned, but not once more what stands in its error already."""
    text = StyledText()
    if isinstance(data, Mapping) and set(data) == {"stdout", "stderr", "return_code"}:
        lines = [*str(data["stdout"]).splitlines()]
        if str(data["stderr"]).strip() != said:
            lines += [f"stderr: {line}" for line in str(data["stderr"]).splitlines()]
        if data["return_code"] != 0:
            lines.append(f"exit code {data['return_code']}")
    else:
        data, stderr = _without_error(data, said)
        lines = (
            []
            if data == {}
            else json.dumps(data, ensure_ascii=False, indent=2, default=str).splitlines()
        )
        lines += [f"stderr: {line}" for line in stderr.splitlines()]
    for line in lines[:_MAX_DATA_LINES]:
        text.line(line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + " …")
    if len(lines) > _MAX_DATA_LINES:
        text.line((f"… {len(lines) - _MAX_DATA_LINES} more lines", "dim"))
    return text


def _without_error(data: object, said: str) -> tuple[object, str]:
    """Return what was returned without what repeats the error, and what is on standard error."""
    if not said or not isinstance(data, Mapping):
        return data, ""
    rest = {key: value for key, value in data.items() if not _repeats(key, value, said)}
    log = rest.pop("stderr", "") if isinstance(rest.get("stderr"), str) else ""
    return rest, log


def _repeats(key: object, value: object, said: str) -> bool:
    match key:
        case "error":
            return isinstance(value, str) and shorten(value).strip() == said
        case "success":
            return value is False
        case "status":
            return value == "error"
        case "message":  # a refusal by a process of ryecore's
            return isinstance(value, str) and said.startswith(value.strip())
        case "stderr":  # of an MCP server that died
            return isinstance(value, str) and value in said
        case "next_step":  # shown below the error
            return isinstance(value, str)
        case "content":  # of an MCP tool: what it said is the error
            return isinstance(value, list) and all(
                isinstance(one, Mapping)
                and set(one) == {"type", "text"}
                and shorten(str(one["text"])).strip() in said
                for one in value
            )
        case "problems":  # of a graph that is invalid: each stands in the error
            return isinstance(value, list) and all(
                isinstance(one, Mapping) and str(one.get("message")) in said for one in value
            )
        case _:
            return False


def _render_plan(plan: Mapping[str, Any]) -> StyledText:
    text = StyledText()
    text.line(("would run  ", "dim"), " ".join([plan["command"], *map(_shown_arg, plan["args"])]))
    text.line(("in         ", "dim"), plan["cwd"], (f"  timeout {plan['timeout_s']:g} s", "dim"))
    return text


def _shown_arg(arg: str) -> str:
    first, _, rest = arg.partition("\n")
    return f"{first} …" if rest else arg


def render_chain(elements: Sequence[Mapping[str, Any]]) -> StyledText:
    """Show the elements of a chain, the tool first."""
    text = StyledText()
    branches = ["   " * (depth - 1) + "└─ " if depth else "" for depth in range(len(elements))]
    names = [str(element["item_id"]) for element in elements]
    width = max(map(len, map("".join, zip(branches, names, strict=True))), default=0)
    for branch, name, element in zip(branches, names, elements, strict=True):
        padding = " " * (width - len(branch) - len(name) + 2)
        text.line((branch, "dim"), (name, "id"), padding, *_render_seal(element))
    return text


def _render_seal(element: Mapping[str, Any]) -> tuple[Span, Span]:
    """Show whether an element was verified, and which space it was found in."""
    integrity = str(element["integrity"])
    if integrity == "built-in":
        return ("built in", "dim"), ("", "dim")
    is_verified = integrity != "unverified"
    seal = (f"verified {integrity[:12]}", "good") if is_verified else ("unverified", "warn")
    return seal, (f"  {element['space']}", "dim")


def render_trace(events: Iterable[Mapping[str, Any]], *, said: str = "") -> StyledText:
    """Show the events of a trace, one a line, but not the error that stands above it already."""
    text = StyledText()
    for event in events:
        failed = bool(event.get("failed")) or event.get("verified") is False
        text.line(
            status_mark("problem" if failed else "note"),
            (str(event["step"]).ljust(17), "bad" if failed else "strong"),
            (_describe(event, said), "bad" if failed else ""),
        )
    return text


def _describe(event: Mapping[str, Any], said: str) -> str:
    if event.get("failed"):
        error = str(event.get("error", ""))
        error = "" if said and error.startswith(said) else error
        return f"{event.get('item_id', '')}  {error}".strip()
    describe = _DESCRIPTIONS.get(str(event["step"]))
    if describe is not None:
        return describe(event)
    return "  ".join(f"{key}={_brief(value)}" for key, value in event.items() if key != "step")


def _brief(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _describe_resolve(event: Mapping[str, Any]) -> str:
    shadows = ", ".join(f"{one['path']} ({one['space']})" for one in event["shadowed"])
    return f"{event['item_id']}  {event['space']}  {event['path'] or ''}" + (
        f"  shadows {shadows}" if shadows else ""
    )


def _describe_env(event: Mapping[str, Any]) -> str:
    parts = [str(event["contributed_by"])]
    if event.get("keys"):
        parts.append("sets " + ", ".join(event["keys"]))
    if event.get("dropped"):
        parts.append("dropped " + ", ".join(event["dropped"]))
        parts.append(f"(next: {event['next_step']})")
    if event.get("narrowed"):
        parts.append("keeps the project out of " + ", ".join(event["narrowed"]))
    if event.get("withheld"):
        parts.append(f"{event['withheld']} that look like credentials are withheld")
    return "  ".join(parts)


def _describe_verify(event: Mapping[str, Any]) -> str:
    return f"{event['item_id']}  " + (
        f"key {event['key_fp']}" if event.get("key_fp") else "unverified (dev mode)"
    )


def _describe_pairs(event: Mapping[str, Any]) -> str:
    pairs = ", ".join(" -> ".join(pair) for pair in event["pairs"])
    return "; ".join([pairs, *event["warnings"]])


def _describe_seal(event: Mapping[str, Any]) -> str:
    count = event.get("files", 0)
    files = counted(count, "file")
    anchor = f"  anchor {event['anchor']}" if event.get("anchor") else ""
    return f"{files}  {str(event.get('digest', ''))[:12]}{anchor}  deps {event['deps']}"


def _describe_interpreter(event: Mapping[str, Any]) -> str:
    over = "; ".join(event["passed_over"])
    return f"{event['var']}={event['path']} ({event['how']})" + (
        f"  passed over {over}" if over else ""
    )


def _describe_execute(event: Mapping[str, Any]) -> str:
    code = f" with code {event['exit_code']}" if event.get("exit_code") is not None else ""
    start = f", {event['start']} start" if event.get("start") else ""
    why = f" ({event['why_cold']})" if event.get("why_cold") else ""
    return f"{event['status']}{code} after {event['duration_ms']} ms{start}{why}"


_DESCRIPTIONS: Final = {
    "resolve": _describe_resolve,
    "verify_integrity": _describe_verify,
    "validate_chain": _describe_pairs,
    "seal": _describe_seal,
    "find_interpreter": _describe_interpreter,
    "resolve_env": _describe_env,
    "execute": _describe_execute,
}


def render_error(document: Mapping[str, Any], message: str, next_step: str) -> StyledText:
    """Show the error object of an execution that did not happen."""
    text = StyledText()
    item_id = str(document.get("item_id", ""))
    text.line(
        status_mark("problem"), (f"{item_id}  " if item_id else "", "strong"), ("refused", "bad")
    )
    for line in message.splitlines():
        text.line("  ", (line, "bad"))
    text.next_step(next_step)
    if document.get("trace"):
        text.line(("  trace", "dim"))
        text.add(render_trace(document["trace"], said=message), "  ")
    return text


def render_directive(document: Mapping[str, Any]) -> StyledText:
    """Show the response object of a directive: its directions, or what a dry run found."""
    text = StyledText()
    metadata = document["metadata"]
    text.line(
        status_mark("ok"),
        (str(document["item_id"]), "strong"),
        (f"  {document['status']}", "good"),
        (f"  {metadata['duration_ms']} ms", "dim"),
    )
    for key, value in metadata.items():
        if key != "duration_ms":
            text.line((f"  {key.replace('_', ' ')}: {brief(value, 80)}", "warn"))
    for line in str(document.get("your_directions", "")).split("\n"):
        if "your_directions" in document:
            text.line("  ", line)
    if "data" in document:
        _add_plan(text, document)
    if document.get("trace"):
        text.line(("  trace", "dim"))
        text.add(render_trace(document["trace"]), "  ")
    return text


def _limit(name: str, value: float) -> str:
    return f"{name} {dollars(read_usd(value)) if name == 'spend' else f'{value:,}'}"


def _add_plan(text: StyledText, document: Mapping[str, Any]) -> None:
    rows = {
        "inputs": [f"{name} = {brief(value, 80)}" for name, value in document["inputs"].items()],
        "extends": document["extends"],
        "model": [document["model"] or document.get("model_problem") or "none named"],
        "limits": [
            _limit(*one) for one in document["limits"].items() if one[0] != "spend_currency"
        ],
        "may": document["permissions"] or ["nothing"],
        "risks": [f"{one['risk']}: {one['reason']}" for one in document["acknowledged_risks"]],
        "hooks": [f"{one['id']} on {one['event']}" for one in document["hooks"]],
    }
    for name, values in rows.items():
        if values:
            text.line((f"  {name.ljust(8)}", "dim"), ", ".join(values))
