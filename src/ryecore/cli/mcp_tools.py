"""`rye mcp tools` and `rye mcp pin`: what an MCP server offers, and what of it may be used."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import click
from attrs import evolve

from ryecore.chain.model import ExecutionResult
from ryecore.chain.rendering import render_result
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import EXIT_FAILED, errors_shown, show, show_json
from ryecore.cli.signals import stopped_by_signals
from ryecore.display.text import StyledText
from ryecore.errors import InputError, RyeError
from ryecore.items.documents import DOCUMENT_EXTENSIONS, parse_document
from ryecore.mcp_client.authoring import (
    PinnedItem,
    choose_tools,
    declarations,
    pin_tool,
    unpinnable,
)
from ryecore.rye import Rye

__all__ = ["pin", "tools"]

_MAX_SHOWN = 100


@click.command(short_help="List the tools of an MCP server.")
@click.argument("server")
@project_option
@json_option
def tools(server: str, project_path: str, as_json: bool) -> None:
    """List the tools of an MCP server, by the id of its item: mcp/servers/context7.

    What a server says of its tools is its own word; nobody has verified it.
    """
    server = server.removeprefix("tool:")
    with errors_shown(as_json=as_json):
        listed = _list(project_path, server, as_json=as_json)
        declared = declarations(listed)
        unfit = {name: unpinnable(one) for name, one in declared.items()}
        pins = {name: None if unfit[name] else one.pin for name, one in declared.items()}
        if as_json:
            found = [_with_pin(one, pins, unfit) for one in listed]
            show_json({"status": "success", "server": server, "tools": found})
            return
        text = StyledText()
        width = max((len(str(one["name"])) for one in listed), default=0)
        for one in listed:
            name = str(one["name"])
            text.line((name.ljust(width), "id"), f"  {_brief(one)}")
            if unfit[name]:
                text.line((f"{' ' * width}  can't be pinned: {unfit[name]}", "warn"))
        count = "1 tool; pin it" if len(listed) == 1 else f"{len(listed)} tools; pin what you want"
        text.line(f"{count}: rye mcp pin {server} NAME --sign")
        show(text)


def _with_pin(
    one: Mapping[str, Any], pins: Mapping[str, str | None], unfit: Mapping[str, str]
) -> dict[str, object]:
    name = str(one["name"])
    document: dict[str, object] = {**one, "pin": pins[name]}
    if unfit[name]:
        document["cannot_be_pinned"] = unfit[name]
    return document


@click.command(short_help="Pin tools of an MCP server, so that models may use them.")
@click.argument("server")
@click.argument("names", nargs=-1, metavar="[TOOL ...]")
@click.option("--all", "everything", is_flag=True, help="Pin every tool of the server.")
@click.option("--into", metavar="ID", help="Below which id; mcp/ and the server's name by default.")
@click.option("--user", is_flag=True, help="Write to user space, not to the project.")
@click.option("--force", is_flag=True, help="Replace items of another declaration.")
@click.option("--sign", is_flag=True, help="Sign the items with your key: you have read them.")
@project_option
@json_option
def pin(
    server: str,
    names: Sequence[str],
    everything: bool,
    into: str | None,
    user: bool,
    force: bool,
    sign: bool,
    project_path: str,
    as_json: bool,
) -> None:
    """Write an item for each tool, pinned to what the server says of it now.

    When the server later says something else of a tool, the tool is refused with the difference.
    """
    server = server.removeprefix("tool:")
    with errors_shown(as_json=as_json):
        listed = _list(project_path, server, as_json=as_json)
        chosen = choose_tools(declarations(listed), names, everything=everything)
        opened = Rye.open(project_path)
        config: Any = _server(opened, server).get("config")
        space = opened.spaces.user if user else opened.spaces.project
        pinned: list[PinnedItem] = []
        failed: list[tuple[str, RyeError]] = []
        for tool in chosen:
            try:
                one = pin_tool(
                    tool,
                    server=server,
                    transport=str(config.get("transport")),
                    folder=into or f"mcp/{server.rpartition('/')[2]}",
                    space=space,
                    force=force,
                )
                if sign:
                    opened.sign(str(one.path))
                    one = evolve(one, state="signed") if one.state == "unchanged" else one
                pinned.append(one)
            except RyeError as error:
                failed.append((tool.name, error))
        _show_pinned(pinned, failed, is_signed=sign, user=user, as_json=as_json)
    if failed:
        sys.exit(EXIT_FAILED)


def _list(project_path: str, server: str, *, as_json: bool) -> list[Mapping[str, Any]]:
    async def execute() -> ExecutionResult:
        async with Rye.open(project_path) as opened:
            _server(opened, server)
            return await opened.execute(f"tool:{server}")

    with stopped_by_signals():
        done = anyio.run(execute)
    if not done.success:
        if as_json:
            show_json(done.to_dict())
        else:
            show(render_result(done.to_dict()))
        sys.exit(EXIT_FAILED)
    found: list[Mapping[str, Any]] = done.data["tools"]  # type: ignore[index]
    return found


def _server(opened: Rye, server: str) -> Mapping[str, object]:
    """What the item of a server says; any other item isn't executed for its tools."""
    item = opened.verify(f"tool:{server}")
    path = item.source.path
    document = parse_document(item.content, path) if path.suffix in DOCUMENT_EXTENSIONS else {}
    if document.get("tool_type") != "mcp_server":
        raise InputError(
            f"tool:{server} is not an MCP server.",
            next_step="Name an item whose tool_type is mcp_server.",
        )
    return document


def _brief(tool: Mapping[str, Any]) -> str:
    first = str(tool.get("description") or "").strip().partition("\n")[0]
    return first if len(first) <= _MAX_SHOWN else first[:_MAX_SHOWN] + " …"


def _show_pinned(
    pinned: Sequence[PinnedItem],
    failed: Sequence[tuple[str, RyeError]],
    *,
    is_signed: bool,
    user: bool,
    as_json: bool,
) -> None:
    if as_json:
        show_json(
            {
                "status": "error" if failed else "success",
                "pinned": [one.to_dict() for one in pinned],
                "failed": [{"tool_name": name, **error.to_dict()} for name, error in failed],
            }
        )
        return
    text = StyledText()
    for one in pinned:
        state = "" if one.state == "written" else f"  {one.state}"
        text.line(("✓ ", "good"), (f"tool:{one.item_id}", "id"), (f"  {one.path}{state}", "dim"))
    for name, error in failed:
        text.line(("✗ ", "bad"), (name, "strong"))
        for line in error.message.splitlines():
            text.line("  ", (line, "bad"))
        text.line(("  next: ", "dim"), error.next_step)
    if pinned and not is_signed:
        where = " --user" if user else ""
        folder = pinned[0].item_id.rpartition("/")[0]
        glob = shlex.quote(f"tool:{folder}/*")
        text.line(f"read {'them' if len(pinned) > 1 else 'it'}, then: rye sign {glob}{where}")
    show(text)
