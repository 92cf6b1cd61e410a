"""`rye mcp serve`: offer projects to MCP clients."""

import os
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import click

from ryecore.cli.arguments import find_project
from ryecore.cli.models import deps_option, models_of
from ryecore.cli.output import errors_shown
from ryecore.errors import ConfigError, InputError, RyeError
from ryecore.rye import Rye

__all__ = ["serve"]

TOKEN_VARIABLE: Final = "RYE_MCP_TOKEN"
_MIN_TOKEN_CHARACTERS: Final = 16
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@click.command(short_help="Serve a project to MCP clients.")
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
@click.option("--no-auth", is_flag=True, help="With --http: let everybody on this machine in.")
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="With --http: a further name that clients call this host by.",
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
    "everything.",
)
@deps_option
def serve(
    projects: Sequence[str],
    http: str | None,
    token_file: str | None,
    no_auth: bool,
    allowed_hosts: Sequence[str],
    allow_sign: bool,
    grants: Sequence[str],
    deps: str | None,
) -> None:
    """Serve projects to MCP clients: rye_execute, rye_fetch and, with --allow-sign, rye_sign.

    A client starts this command and talks to it over standard input and output; with --http it
    finds it running. It ends when its input is closed, or by a signal, with all that it started.
    """
    with errors_shown(as_json=False):
        if http is None and (token_file or no_auth or allowed_hosts):
            raise InputError("These options are for --http.", next_step="Add --http PORT.")
        address = None if http is None else _address(http)
        is_open = http is None or no_auth
        token, is_new = (None, False) if is_open else _token(token_file)
        for grant in grants:
            _check_grant(grant, allow_sign=allow_sign)
        anyio.run(
            partial(
                _serve,
                projects or (find_project(),),
                address=address,
                token=token,
                is_token_new=is_new,
                allowed_hosts=allowed_hosts,
                allow_sign=allow_sign,
                grants=grants,
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
    allow_sign: bool,
    grants: Sequence[str],
    models: Mapping[str, Any],
) -> None:
    from ryecore.mcp_server import (  # noqa: PLC0415 - the SDK is large, and an extra
        Approvals,
        create_server,
        serve_http,
        serve_stdio,
    )

    approvals = Approvals() if allow_sign else None
    async with AsyncExitStack() as opened:
        # The person at the client approves; what models may use is the host's own choice.
        given = {**models, "approve": approvals}
        ryes = [await opened.enter_async_context(Rye.open(path, **given)) for path in paths]
        options = {"grants": frozenset(grants)} if grants else {}
        server = create_server(ryes, approvals=approvals, **options)
        if address is None:
            await _until_told_to_end(partial(serve_stdio, server), ryes)
        else:
            host, port = address
            await _until_told_to_end(
                partial(
                    serve_http,
                    server,
                    token=token,
                    host=host,
                    port=port,
                    allowed_hosts=allowed_hosts,
                    announce=partial(_announce, new_token=token if is_token_new else None),
                ),
                ryes,
            )


async def _until_told_to_end(serve: Callable[[], Awaitable[None]], ryes: Sequence[Rye]) -> None:
    """Serve until that ends, or a signal comes: then each call that runs is ended and answered."""
    refusal: RyeError | None = None
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                async for _ in signals:
                    for rye in ryes:
                        await rye.aclose()
                    tasks.cancel_scope.cancel()

            tasks.start_soon(listen)
            try:
                await serve()
            except RyeError as error:  # which the group would wrap
                refusal = error
            tasks.cancel_scope.cancel()
    if refusal is not None:
        raise refusal


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
    raise InputError(f"{text!r} is no address.", next_step="Write PORT or HOST:PORT.")


def _check_grant(grant: str, *, allow_sign: bool) -> None:
    if not grant.startswith(("rye.execute.", "rye.fetch.", "rye.sign.", "rye.*")):
        raise InputError(
            f"{grant!r} is no capability.",
            next_step="Write such as rye.execute.tool.acme.* or rye.fetch.*.",
        )
    if grant.startswith("rye.sign.") and ("*" in grant or not allow_sign):
        raise InputError(
            f"{grant!r} grants nothing: signing takes --allow-sign, and the item's full name.",
            next_step="Pass --allow-sign; the person at the client then approves each signature.",
        )


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
