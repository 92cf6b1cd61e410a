"""The commands of `rye mcp`: offer projects to MCP clients, and use MCP servers."""

import os
import secrets
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import click
from attrs import evolve

from ryecore.chain.model import ExecutionResult
from ryecore.chain.rendering import render_result
from ryecore.cli.groups import HintedGroup
from ryecore.cli.mcp_login import login, logout
from ryecore.cli.opening import (
    deps_option,
    models_of,
    serve_until_signalled,
    with_project,
)
from ryecore.cli.options import find_project, json_option, project_option
from ryecore.cli.output import EXIT_FAILED, errors_shown, show, show_json
from ryecore.display.text import StyledText, counted, status_mark
from ryecore.errors import ConfigError, InputError, RyeError
from ryecore.items.documents import DOCUMENT_EXTENSIONS, parse_document
from ryecore.mcp_client.authoring import (
    PinnedItem,
    pin_tool,
    read_declarations,
    select_tools,
    why_unpinnable,
)
from ryecore.rye import Rye

__all__ = ["mcp"]

TOKEN_VARIABLE: Final = "RYE_MCP_TOKEN"
_MIN_TOKEN_CHARACTERS: Final = 16
_MAX_SHOWN: Final = 100


@click.group(cls=HintedGroup, short_help="Offer a project to MCP clients, and use MCP servers.")
def mcp() -> None:
    """Offer a project to MCP clients, and use the tools of MCP servers."""


mcp.add_command(login)
mcp.add_command(logout)


@mcp.command(short_help="Serve a project to MCP clients.")
@click.option(
    "--project",
    "projects",
    multiple=True,
    metavar="PATH",
    help="A project's folder; may be given several times. By default this one, or the nearest "
    "above that holds .ai.",
)
@click.option(
    "--http",
    metavar="[HOST:]PORT",
    help="Serve streamable HTTP there, not standard input and output; port 0 takes any.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help=f"With --http: the file that holds the bearer token; else {TOKEN_VARIABLE}, else one is "
    "made and shown once.",
)
@click.option("--no-auth", is_flag=True, help="With --http: accept everybody on this machine.")
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="With --http: a further name that clients call this host by.",
)
@click.option(
    "--allow-origin",
    "allowed_origins",
    multiple=True,
    metavar="ORIGIN",
    help="With --http: an origin of web pages that may call the server, such as "
    "https://app.example; * for all.",
)
@click.option(
    "--allow-sign",
    is_flag=True,
    help="Let clients ask for signatures and copies; the person at the client approves each.",
)
@click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="CAPABILITY",
    help="What clients may do, such as rye.execute.tool.acme.*; by default execute and fetch "
    "everything, and answer what tools ask.",
)
@click.option(
    "--tools",
    multiple=True,
    metavar="PATTERN",
    help="Offer the signed tools of this id or pattern, such as acme/*, as MCP tools of their own; "
    "may be given several times.",
)
@click.option(
    "--no-verbs", is_flag=True, help="Offer these alone, without rye_execute and its siblings."
)
@click.option(
    "--both",
    is_flag=True,
    help="Send each result as text and as structured content, for clients that show a model only "
    "one of them.",
)
@deps_option
def serve(
    projects: Sequence[str],
    http: str | None,
    token_file: str | None,
    no_auth: bool,
    allowed_hosts: Sequence[str],
    allowed_origins: Sequence[str],
    allow_sign: bool,
    grants: Sequence[str],
    tools: Sequence[str],
    no_verbs: bool,
    both: bool,
    deps: str | None,
) -> None:
    """Serve projects to MCP clients: rye_execute, rye_fetch and, with --allow-sign, rye_sign.

    Signed tools that --tools or .ai/config/mcp/serve.yaml names are MCP tools of their own.

    A client starts this command and talks to it over standard input and output; with --http it
    finds it running. It ends when its input is closed, or by a signal, with all that it started.
    """
    with errors_shown(as_json=False):
        if http is None and (token_file or no_auth or allowed_hosts or allowed_origins):
            raise InputError("These options are for --http.", next_step="Add --http PORT.")
        address = None if http is None else _address(http)
        is_open = http is None or no_auth
        token, is_new = (None, False) if is_open else _token(token_file)
        for grant in grants:
            _check_grant(grant, allow_sign=allow_sign)
        offered = {"tools": [_pattern(one) for one in tools], "verbs": not no_verbs, "both": both}
        anyio.run(
            partial(
                _serve,
                projects or (find_project(),),
                address=address,
                token=token,
                is_token_new=is_new,
                allowed_hosts=allowed_hosts,
                allowed_origins=[_origin(one) for one in allowed_origins],
                allow_sign=allow_sign,
                grants=grants,
                offered=offered,
                models=models_of(deps, are_wanted=True),
            )
        )


async def _serve(
    paths: Sequence[str],
    *,
    address: tuple[str, int] | None,
    token: str | None,
    is_token_new: bool,
    allowed_hosts: Sequence[str],
    allowed_origins: Sequence[str],
    allow_sign: bool,
    grants: Sequence[str],
    offered: Mapping[str, Any],
    models: Mapping[str, Any],
) -> None:
    from ryecore.mcp_server import (  # noqa: PLC0415 - the SDK is large, and an extra
        Approvals,
        create_server,
        origins_of,
        serve_http,
        serve_stdio,
    )

    approvals = Approvals() if allow_sign else None
    async with AsyncExitStack() as opened:
        # The person at the client approves; what models may use is the host's own choice.
        given = {**models, "approve": approvals}
        ryes = [await opened.enter_async_context(Rye.open(path, **given)) for path in paths]
        options = {**offered, **({"grants": frozenset(grants)} if grants else {})}
        server = create_server(ryes, approvals=approvals, **options)

        async def close(_: signal.Signals) -> bool:  # which ends and answers each running call
            for rye in ryes:
                await rye.aclose()
            return True

        if address is None:
            await serve_until_signalled(partial(serve_stdio, server), close)
        else:
            host, port = address
            await serve_until_signalled(
                partial(
                    serve_http,
                    server,
                    token=token,
                    host=host,
                    port=port,
                    allowed_hosts=allowed_hosts,
                    allowed_origins={*allowed_origins, *origins_of(ryes)},
                    announce=partial(_announce, new_token=token if is_token_new else None),
                ),
                close,
            )


def _announce(url: str, *, new_token: str | None) -> None:
    if new_token is not None:
        _say(f"bearer token (shown this once): {new_token}")
    _say(f"ryecore serves MCP at {url}")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if port.isascii() and port.isdecimal() and int(port) < 65536:
        return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)
    raise InputError(f"{text!r} isn't an address.", next_step="Write PORT or HOST:PORT.")


def _check_grant(grant: str, *, allow_sign: bool) -> None:
    if not grant.startswith(("rye.execute.", "rye.fetch.", "rye.ask.", "rye.sign.", "rye.*")):
        raise InputError(
            f"{grant!r} isn't a capability.",
            next_step="Write such as rye.execute.tool.acme.* or rye.fetch.*.",
        )
    if grant.startswith("rye.sign.") and ("*" in grant or not allow_sign):
        raise InputError(
            f"{grant!r} grants nothing: signing takes --allow-sign, and the item's full name.",
            next_step="Pass --allow-sign; the person at the client then approves each signature.",
        )


def _pattern(text: str) -> str:
    from ryecore.mcp_server.offer import check_pattern  # noqa: PLC0415 - only for serving

    try:
        return check_pattern(text, "tool")
    except ValueError as problem:
        raise InputError(f"--tools {text!r} {problem}.", next_step="Correct it.") from None


def _origin(text: str) -> str:
    from ryecore.mcp_server.offer import check_origin  # noqa: PLC0415 - only for serving

    try:
        return check_origin(text)
    except ValueError as problem:
        raise InputError(f"--allow-origin {text!r} {problem}.", next_step="Correct it.") from None


def _token(token_file: str | None) -> tuple[str, bool]:
    """Return the bearer token, and whether it was made here and has to be shown."""
    if token_file is not None:
        token = _read_token(Path(token_file))
    else:
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not token:
            return secrets.token_urlsafe(32), True
    if len(token) < _MIN_TOKEN_CHARACTERS or not (token.isascii() and token.isprintable()):
        raise InputError(
            f"The token has fewer than {_MIN_TOKEN_CHARACTERS} printable ASCII characters.",
            next_step="Make one: openssl rand -hex 32.",
        )
    return token, False


def _read_token(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigError(
                f"Others may read the token in {path}.", next_step=f"Run: chmod 600 {path}"
            )
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as problem:
        raise ConfigError(
            f"The token in {path} can't be read: {problem}.", next_step="Name another file."
        ) from None


# The tools of a server, and the pinned ones


@mcp.command(short_help="List the tools of an MCP server.")
@click.argument("server")
@project_option
@json_option
def tools(server: str, project_path: str, as_json: bool) -> None:
    """List the tools of an MCP server, by the id of its item, such as mcp/servers/context7.

    A server's descriptions of its tools are unverified.
    """
    server = server.removeprefix("tool:")
    listed = _list(project_path, server, as_json=as_json)
    declared = read_declarations(listed)
    unfit = {name: why_unpinnable(one) for name, one in declared.items()}
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
    count = f"{counted(len(listed), 'tool')}; pin {'it' if len(listed) == 1 else 'what you want'}"
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


@mcp.command(short_help="Pin tools of an MCP server, so that models may use them.")
@click.argument("server")
@click.argument("names", nargs=-1, metavar="[TOOL ...]")
@click.option("--all", "everything", is_flag=True, help="Pin every tool of the server.")
@click.option(
    "--into", metavar="ID", help="The prefix of the ids; by default mcp/ and the server's name."
)
@click.option("--user", is_flag=True, help="Write to user space, not to the project.")
@click.option("--force", is_flag=True, help="Replace items that are pinned to another declaration.")
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
    """Write an item for each tool, pinned to what the server declares now.

    If the server changes the declaration of a tool later, the tool is refused, with the difference.
    """
    server = server.removeprefix("tool:")
    listed = _list(project_path, server, as_json=as_json)
    chosen = select_tools(read_declarations(listed), names, everything=everything)
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
    async def execute(rye: Rye) -> ExecutionResult:
        _server(rye, server)
        return await rye.execute(f"tool:{server}")

    done = with_project(project_path, execute)
    if not done.success:
        if as_json:
            show_json(done.to_dict())
        else:
            show(render_result(done.to_dict()))
        sys.exit(EXIT_FAILED)
    found: list[Mapping[str, Any]] = done.data["tools"]  # type: ignore[index]
    return found


def _server(opened: Rye, server: str) -> Mapping[str, object]:
    """Return the declaration of an MCP server's item; refuse any other item."""
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
        text.line(status_mark("ok"), (f"tool:{one.item_id}", "id"), (f"  {one.path}{state}", "dim"))
    for name, error in failed:
        text.failure(name, error)
    if pinned and not is_signed:
        where = " --user" if user else ""
        folder = pinned[0].item_id.rpartition("/")[0]
        glob = shlex.quote(f"tool:{folder}/*")
        text.line(f"read {'them' if len(pinned) > 1 else 'it'}, then: rye sign {glob}{where}")
    show(text)
