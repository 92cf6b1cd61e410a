"""The commands of `rye node`: a server that runs the projects of callers whom its operator allows.

Source: decisions 64 and 65.
"""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import click

from ryecore.actions.settings import STATE, check_state
from ryecore.cli.groups import HintedGroup
from ryecore.cli.keys import read_public_key
from ryecore.cli.opening import deps_option, models_of, serve_until_signalled
from ryecore.cli.options import json_option
from ryecore.cli.output import errors_shown, show, show_done, show_json
from ryecore.cli.work import log_to_stderr, work
from ryecore.convert.money import read_usd, write_usd
from ryecore.display.text import StyledText, byte_size, counted, exact_dollars
from ryecore.errors import ConfigError, InputError
from ryecore.lillux.keys import PublicKey
from ryecore.node.callers import DEFAULT_SCOPES, METRICS_SCOPE, Caller, Callers
from ryecore.node.identity import (
    FOLDER_VARIABLE,
    NodeIdentity,
    TlsFiles,
    find_node_folder,
    load_node,
    make_node,
)
from ryecore.remote.queue_address import DEFAULT_QUEUE, is_queue_name

__all__ = ["node"]

_DEFAULTS = Caller(PublicKey(bytes(32)))

_folder_option = click.option(
    "--folder",
    metavar="PATH",
    help=f"The node's folder; by default {FOLDER_VARIABLE}, else .ai/node of your user space.",
)


@click.group(cls=HintedGroup, short_help="Let other machines run their projects here.")
def node() -> None:
    """Let other machines run their projects here, for the callers that you allow.

    A caller pushes a signed project and runs its items here, as your user: allow only those whom
    you would let log in. Start with: rye node init
    """


node.add_command(work)


@node.command()
@_folder_option
@json_option
def init(folder: str | None, as_json: bool) -> None:
    """Make the folder of a node, with its keys and settings."""
    made = make_node(find_node_folder(folder, os.environ))
    named = "" if folder is None else f" --folder {folder}"
    show_done(
        f"node {made.fingerprint} made in {made.folder}; its settings are in node.yaml",
        _node_fields(made),
        steps=(
            f"rye node allow PUBLIC_KEY.pem{named}    (the caller's key: rye keys list shows it)",
            f"rye node serve{named}",
        ),
        as_json=as_json,
    )


@node.command("show")
@_folder_option
@json_option
def show_node(folder: str | None, as_json: bool) -> None:
    """Show a node's key, which callers compare, and its settings."""
    found = load_node(find_node_folder(folder, os.environ))
    if as_json:
        show_json({"status": "success", **_node_fields(found)})
        return
    settings, text = found.settings, StyledText()
    text.line(("node ", "dim"), (found.fingerprint, "id"), (f"  {found.folder}", "dim"))
    tls = "plain HTTP" if settings.tls is None else f"TLS with {settings.tls.certificate}"
    text.line(f"  listens at {settings.host}:{settings.port}, {tls}")
    text.line(f"  at most {counted(settings.max_runs, 'run')} at once; trust: {settings.trust}")
    text.line(f"  {counted(len(Callers(found.folder, found.key).list()), 'caller')}")
    for line in found.key.public.pem.decode().splitlines():
        text.line(f"  {line}")
    show(text)


@node.command(short_help="Serve the node, until a signal comes.")
@_folder_option
@click.option("--host", metavar="ADDRESS", help="The address to listen at, not node.yaml's.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 takes any free one.")
@click.option(
    "--tls-certificate", type=click.Path(dir_okay=False), help="A certificate with its chain, PEM."
)
@click.option("--tls-key", type=click.Path(dir_okay=False), help="The certificate's key, PEM.")
@click.option(
    "--insecure-http",
    is_flag=True,
    help="Serve plain HTTP beyond this machine, as behind a proxy that ends TLS.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Log each refused request, and why it was refused."
)
@click.option(
    "--state", metavar="ADDRESS",
    help="Hand runs to the workers of this shared state, and run none here: rye node work.",
)  # fmt: skip
@click.option(
    "--queue",
    metavar="NAME",
    help=f"The workers' queue, with the shared state of {STATE} unless --state names one; by "
    "default the queue is default.",
)
@deps_option
def serve(
    folder: str | None,
    host: str | None,
    port: int | None,
    tls_certificate: str | None,
    tls_key: str | None,
    insecure_http: bool,
    verbose: bool,
    state: str | None,
    queue: str | None,
    deps: str | None,
) -> None:
    """Serve the node until a signal comes; the next start recovers runs that had not ended.

    Running tools may end for the time that node.yaml sets; a second signal ends them at once. With
    --state or --queue the node runs nothing itself: it hands runs to workers, which go on
    meanwhile, and the next start of the node follows them.

    Models come from --deps, or from the API keys in the environment: callers use them, and you pay.
    """
    with errors_shown(as_json=False):
        if (tls_certificate is None) != (tls_key is None):
            raise InputError(
                "A certificate and its key belong together.",
                next_step="Name both --tls-certificate and --tls-key.",
            )
        tls = None
        if tls_certificate is not None and tls_key is not None:
            tls = TlsFiles(Path(tls_certificate), Path(tls_key))
        if queue is not None and not is_queue_name(queue):
            raise InputError(
                f"--queue {queue[:80]!r} can't be the name of a queue.",
                next_step="Write at most 64 letters, digits, _ and -, such as batch.",
            )
        address = None
        if state is not None or queue is not None:
            address = check_state(state, os.environ)
            if address is None:
                raise ConfigError(
                    "--queue needs the state that the node shares with its workers.",
                    next_step=f"Pass --state postgresql://USER@HOST/DATABASE, or set {STATE}.",
                )
        if verbose:
            log_to_stderr("ryecore.node")
        from ryecore.node import serve_node  # noqa: PLC0415 - its packages are an extra

        async def run() -> None:
            stop = anyio.Event()

            async def end(number: signal.Signals) -> bool:
                is_second = stop.is_set()
                _say(f"ryecore ends the node{' at once' if is_second else ''}: {number.name} came")
                stop.set()
                return is_second

            await serve_until_signalled(
                partial(
                    serve_node,
                    find_node_folder(folder, os.environ),
                    agent=models_of(deps, are_wanted=True).get("agent"),
                    deps_factory=deps,  # the keys of the environment don't reach what callers run
                    host=host,
                    port=port,
                    tls=tls,
                    insecure_http=insecure_http,
                    announce=_announce,
                    stop=stop,
                    state=address,
                    queue=queue or DEFAULT_QUEUE,
                ),
                end,
            )

        anyio.run(run)


def _announce(url: str) -> None:
    _say(f"ryecore serves a node at {url}")


def _say(line: str) -> None:
    with suppress(OSError):  # who would read it may have gone
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


# Callers


@node.command(short_help="Allow a key to run items here.")
@click.argument("key_file", metavar="PUBLIC_KEY.pem|KEY.toml", type=click.Path(dir_okay=False))
@click.option("--label", default="", help="The caller's name, for you.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="CAPABILITY",
    help="What its runs may do at most, such as rye.execute.tool.acme.*; by default "
    f"{' and '.join(DEFAULT_SCOPES)}. {METRICS_SCOPE} lets it read the metrics.",
)
@click.option("--not-after", metavar="UTC", help="When it ends, such as 2030-01-31T00:00:00Z.")
@click.option(
    "--max-runs", default=_DEFAULTS.max_runs, show_default=True, type=click.IntRange(0, 100_000),
    help="Runs at once.",
)  # fmt: skip
@click.option(
    "--max-bytes", default=_DEFAULTS.max_bytes, show_default=True, type=click.IntRange(0, 2**60),
    help="Bytes of its objects and spaces.",
)  # fmt: skip
@click.option(
    "--max-spend", metavar="USD", help="What its runs may spend on models in all; else no bound."
)
@click.option(
    "--trust",
    type=click.Choice(["caller", "operator"]),
    help="Whose keys count in its spaces: its own too, or those that you trust alone; by default "
    "as node.yaml says.",
)
@_folder_option
@json_option
def allow(
    key_file: str,
    label: str,
    scopes: Sequence[str],
    not_after: str | None,
    max_runs: int,
    max_bytes: int,
    max_spend: str | None,
    trust: Literal["caller", "operator"] | None,
    folder: str | None,
    as_json: bool,
) -> None:
    """Allow a caller's public key; it may then push projects here, and run their items.

    A running node takes it at the next request. A key that is allowed already gets these scopes and
    quotas in place of its earlier ones.
    """
    found = load_node(find_node_folder(folder, os.environ))
    key, owner = read_public_key(Path(key_file))
    caller = Caller(
        key,
        label=label or owner,
        scopes=tuple(_check_scope(one) for one in scopes) or DEFAULT_SCOPES,
        not_after=not_after,
        max_runs=max_runs,
        max_bytes=max_bytes,
        max_spend_microcents=_read_spend(max_spend),
        trust=trust or found.settings.trust,
    )
    path = Callers(found.folder, found.key).allow(caller)
    show_done(
        f"key {key.fingerprint} may run items here: {path}",
        {**_caller_fields(caller), "path": str(path)},
        as_json=as_json,
    )


@node.command("callers")
@_folder_option
@json_option
def list_callers(folder: str | None, as_json: bool) -> None:
    """List who may run items here, with scopes and quotas."""
    found = load_node(find_node_folder(folder, os.environ))
    callers = Callers(found.folder, found.key)
    listed, invalid = callers.list(), callers.invalid()
    if as_json:
        show_json(
            {
                "status": "success",
                "callers": [_caller_fields(one) for one in listed],
                "invalid": [str(one) for one in invalid],
            }
        )
        return
    text = StyledText()
    width = max((len(one.label) for one in listed), default=0)
    for one in listed:
        until = f"  until {one.not_after}" if one.not_after else ""
        spend = one.max_spend_microcents
        money = "" if spend is None else f", {exact_dollars(spend, 2)}"
        text.line(
            (one.fingerprint, "id"),
            f"  {one.label:<{width}}  {' '.join(one.scopes)}",
            (f"  {counted(one.max_runs, 'run')}, {byte_size(one.max_bytes)}{money}", "dim"),
            (until, "warn" if one.is_expired else "dim"),
        )
    for path in invalid:
        text.line((f"not signed by this node's key: {path}", "warn"))
    if not listed:
        text.line("no caller is allowed yet; allow one with: rye node allow PUBLIC_KEY.pem")
    show(text)


@node.command(short_help="Allow a key no longer.")
@click.argument("fingerprint", metavar="FINGERPRINT|PUBLIC_KEY.pem")
@_folder_option
@json_option
def revoke(fingerprint: str, folder: str | None, as_json: bool) -> None:
    """Allow a key no longer, from the next request on. Its runs continue to their end.

    What it pushed is removed once it was unused for the time that node.yaml sets.
    """
    found = load_node(find_node_folder(folder, os.environ))
    if os.path.isfile(fingerprint):
        fingerprint = read_public_key(Path(fingerprint))[0].fingerprint
    if not Callers(found.folder, found.key).revoke(fingerprint):
        raise InputError(
            f"No caller has the key {fingerprint}.", next_step="List them: rye node callers"
        )
    show_done(
        f"key {fingerprint} may no longer run items here",
        {"fingerprint": fingerprint},
        as_json=as_json,
    )


def _check_scope(scope: str) -> str:
    if not scope.startswith(("rye.execute.", "rye.fetch.", "rye.*", METRICS_SCOPE)):
        raise InputError(
            f"{scope!r} is not a scope.",
            next_step=f"Write such as rye.execute.tool.acme.*, rye.fetch.* or {METRICS_SCOPE}; "
            "nobody signs on a node.",
        )
    return scope


def _read_spend(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        usd = Decimal(text)
        if usd.is_finite() and 0 <= usd <= 10**9:
            return read_usd(float(usd))
    except InvalidOperation:
        pass
    raise InputError(f"--max-spend {text!r} is not an amount.", next_step="Write such as 25.50.")


def _node_fields(found: NodeIdentity) -> dict[str, object]:
    settings, identity = found.settings, found.to_document()
    return {
        "folder": str(found.folder),
        "fingerprint": found.fingerprint,
        "node_key": identity.node_key,
        "box_key": identity.box_key,
        "host": settings.host,
        "port": settings.port,
        "tls": None if settings.tls is None else str(settings.tls.certificate),
        "trust": settings.trust,
        "max_runs": settings.max_runs,
        "unused_days": settings.unused_days,
    }


def _caller_fields(one: Caller) -> dict[str, object]:
    spend = one.max_spend_microcents
    return {
        "fingerprint": one.fingerprint,
        "label": one.label,
        "scopes": list(one.scopes),
        "not_after": one.not_after,
        "is_expired": one.is_expired,
        "max_runs": one.max_runs,
        "max_bytes": one.max_bytes,
        "max_spend_usd": None if spend is None else write_usd(spend),
        "trust": one.trust,
    }
