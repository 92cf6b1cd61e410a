"""The commands of `rye`."""

import getpass
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click

from ryecore import __version__
from ryecore.actions.sign import SignReport
from ryecore.actions.verify import VerifyReport
from ryecore.chain.model import ChainTrace, ExecutionResult
from ryecore.chain.rendering import render_result
from ryecore.cli.arguments import (
    HintedGroup,
    TakesParameters,
    read_object,
    read_overrides,
    read_pairs,
)
from ryecore.cli.doctor import doctor
from ryecore.cli.env import env
from ryecore.cli.forking import execute_fork
from ryecore.cli.graphs import graph
from ryecore.cli.items import fetch, search
from ryecore.cli.live import can_redraw
from ryecore.cli.mcp import mcp
from ryecore.cli.models import deps_option, models_of
from ryecore.cli.new import init, new
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import (
    EXIT_FAILED,
    EXIT_REFUSED,
    errors_shown,
    show,
    show_json,
    show_text,
    show_warning,
)
from ryecore.cli.pictures import Drawing, drawing_options
from ryecore.cli.signals import stopped_by_signals
from ryecore.cli.threads import threads
from ryecore.directives.parser import parse_directive
from ryecore.display.text import StyledText
from ryecore.errors import RyeError, SigningError
from ryecore.items.documents import DOCUMENT_EXTENSIONS, parse_document
from ryecore.items.packages import lock_packages
from ryecore.items.trust import ListedKey
from ryecore.items.verification import VerifiedItem
from ryecore.lillux.keys import PublicKey
from ryecore.rye import Rye

__all__ = ["rye"]


@click.group(cls=HintedGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rye")
def rye() -> None:
    """Sign, verify and execute the tools and directives of a project.

    Exits with 0 when all went well, 1 when a tool ran and failed, 2 when something was refused
    and nothing ran.
    """
    warnings.showwarning = show_warning


@rye.command(cls=TakesParameters, short_help="Execute a tool, or print a directive's directions.")
@click.argument("ref")
@click.argument("parameters", nargs=-1, metavar="[KEY=VALUE ...]")
@click.option("--params", metavar="JSON|-", help="The parameters as one JSON object; - reads it.")
@project_option
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="Seconds until it is ended.")
@click.option("--model", metavar="MODEL", help="A directive's: provider/model, a tier or a name.")
@click.option(
    "--limit", "limits", multiple=True, metavar="NAME=N", help="A directive's: turns=8; repeatable."
)
@click.option("--dry-run", is_flag=True, help="Verify, validate and plan; run nothing.")
@click.option("--target", default="local", metavar="WHERE", help="local, remote or remote:NAME.")
@click.option("--thread", default="inline", metavar="HOW", help="inline, or fork for a directive.")
@click.option("--async", "async_", is_flag=True, help="Return at once; see: rye threads --help")
@click.option("--idempotency-key", metavar="KEY", help="A start that is repeated finds its run.")
@click.option("--trace", is_flag=True, help="Show every decision.")
@deps_option
@json_option
def execute(
    ref: str,
    parameters: Sequence[str],
    params: str | None,
    project_path: str,
    timeout_s: float | None,
    model: str | None,
    limits: Sequence[str],
    dry_run: bool,
    target: str,
    thread: str,
    async_: bool,
    idempotency_key: str | None,
    trace: bool,
    deps: str | None,
    as_json: bool,
) -> None:
    """Execute a tool through its verified chain, or print a directive's directions.

    With --thread fork a directive runs in a thread of its own, with a model. On a terminal its
    tree is shown while it runs; Ctrl-C asks it to stop.

    KEY=VALUE is text where the item's schema says so, else JSON if it reads as JSON, else text.
    """
    with errors_shown(as_json=as_json):
        run = partial(
            _execute, project_path, ref, parameters, read_object(params, "--params"), deps,
            is_shown=not as_json and can_redraw(sys.stderr),
            timeout_s=timeout_s, model=model, limits=read_overrides(limits),
            dry_run=dry_run, target=target, thread=thread, async_=async_, trace=trace,
            idempotency_key=idempotency_key,
        )  # fmt: skip
        with stopped_by_signals():
            done = anyio.run(run)
        document = done.to_dict()
        if as_json:
            show_json(document)
        elif "your_directions" in document and not trace:
            show_text(str(document["your_directions"]), done.render())
        else:
            show(done.render())
        if not done.success:
            sys.exit(EXIT_FAILED)


@rye.command(short_help="Show a tool's chain and what leads to it.")
@click.argument("ref")
@drawing_options
@project_option
@json_option
def trace(ref: str, project_path: str, drawing: Drawing, as_json: bool) -> None:
    """Show a tool's chain and every decision that leads to it; run nothing."""
    with errors_shown(as_json=as_json):
        with stopped_by_signals():
            done = anyio.run(_trace, project_path, ref)
        if drawing.is_wanted:
            drawing.show_chain(done)
        elif as_json:
            show_json(done.to_dict())
        else:
            show(render_result(done.to_dict()))


async def _trace(project_path: str, ref: str) -> ChainTrace:
    async with Rye.open(project_path) as opened:
        return await opened.trace(ref)


@rye.command(short_help="Sign an item, or all that a glob matches.")
@click.argument("pattern", metavar="REF|GLOB|FILE")
@project_option
@click.option("--user", is_flag=True, help="Sign in user space, not in the project.")
@click.option("--packages", is_flag=True, help="Lock a package folder such as node_modules.")
@json_option
def sign(pattern: str, project_path: str, user: bool, packages: bool, as_json: bool) -> None:
    """Sign an item, or all that a glob such as 'tool:acme/*' matches, with your key.

    A glob is compared with the path below the kind's folder, with its extension and without.
    """
    with errors_shown(as_json=as_json):
        opened = Rye.open(project_path)
        if packages:
            report = SignReport((lock_packages(Path(pattern), opened.keys.load()),))
        else:
            report = opened.sign(pattern, space="user" if user else "project")
        if as_json:
            show_json(report.to_dict())
        else:
            text = StyledText()
            for one in report.signed:
                text.line(("✓ ", "good"), f"{one.kind}:{one.relative}", (f"  {one.path}", "dim"))
                if problem := _unreadable(one.kind, one.path):
                    text.line((f"  ! signed, but won't run: {problem}", "warn"))
            for path, error in report.failed:
                text.line(("✗ ", "bad"), str(path), (f"  {error}", "bad"))
            text.line(
                f"{len(report.signed)} of {len(report.signed) + len(report.failed)} signed"
                + (
                    f" with the key {report.signed[0].signature.fingerprint}"
                    if report.signed
                    else ""
                )
                + (f"; {report.skipped_text}" if report.skipped else "")
            )
            show(text)
        if report.failed:
            sys.exit(EXIT_FAILED)


def _unreadable(kind: str, path: Path) -> str:
    """Return why a signed document or directive can't be read; empty where it can."""
    try:
        if kind == "directive" and path.suffix == ".md":
            parse_directive(path.read_bytes(), path)
        elif kind == "tool" and path.suffix in DOCUMENT_EXTENSIONS:
            parse_document(path.read_bytes(), path)
    except RyeError as error:
        return error.message.partition("\n")[0]
    return ""


@rye.command(short_help="Verify an item, or all that a glob matches.")
@click.argument("ref", metavar="REF|GLOB|FILE")
@project_option
@click.option("--user", is_flag=True, help="With a glob: in user space, not in the project.")
@json_option
def verify(ref: str, project_path: str, user: bool, as_json: bool) -> None:
    """Verify an item, or all that a glob such as 'tool:acme/*' matches; run nothing.

    A glob is compared with the path below the kind's folder, with its extension and without.
    """
    with errors_shown(as_json=as_json):
        opened = Rye.open(project_path)
        if any(mark in ref for mark in "*?["):
            report = opened.verify_all(ref, space="user" if user else "project")
            _show_report(report, as_json=as_json)
            return
        item = opened.verify(ref)
        source = item.source
        document = {
            "status": "success",
            "item_id": str(source.ref),
            "path": str(source.path),
            "space": source.space.label,
            "integrity": item.integrity,
            "key_fp": item.fingerprint,
        }
        if as_json:
            show_json(document)
            return
        text = StyledText()
        text.line(*_seal(item), (f"  {source.space.label}", "dim"))
        text.line(("  file  ", "dim"), str(source.path))
        text.line(("  hash  ", "dim"), item.integrity)
        text.line(("  key   ", "dim"), str(item.fingerprint))
        show(text)


def _show_report(report: VerifyReport, *, as_json: bool) -> None:
    if as_json:
        show_json(report.to_dict())
    else:
        text = StyledText()
        for item in report.verified:
            text.line(*_seal(item), (f"  {item.source.path}", "dim"))
        for path, error in report.failed:
            text.line(("✗ ", "bad"), (str(path), "strong"))
            text.line("  ", (error.message, "bad"))
            text.line(("  next: ", "dim"), error.next_step)
        text.line(f"{len(report.verified)} of {len(report.verified) + len(report.failed)} verified")
        for path, error in report.failed_records:
            text.line(("! ", "warn"), (str(path), "strong"), ("  record", "warn"))
            text.line("  ", (error.message, "warn"))
            text.line(("  next: ", "dim"), error.next_step)
        if report.records or report.failed_records:
            total = len(report.records) + len(report.failed_records)
            text.line(
                (f"{len(report.records)} of {total} records of threads attested by you", "dim")
            )
        show(text)
    if report.failed:
        sys.exit(EXIT_REFUSED)


def _seal(item: VerifiedItem) -> tuple[tuple[str, str], ...]:
    verified = item.is_verified
    return (
        ("✓ ", "good") if verified else ("! ", "warn"),
        (str(item.source.ref), "strong"),
        ("  verified", "good") if verified else ("  unverified (dev mode)", "warn"),
    )


@rye.command("trust-project", short_help="Trust a project's own interpreters.")
@project_option
@json_option
def trust_project(project_path: str, as_json: bool) -> None:
    """Trust a project's own interpreters, such as its .venv/bin/python."""
    with errors_shown(as_json=as_json):
        opened = Rye.open(project_path)
        path = opened.trust_project()
        _done(
            {"status": "success", "project": str(opened.project), "path": str(path)},
            f"interpreters inside {opened.project} may run; to take that back, remove {path}",
            as_json=as_json,
        )


rye.add_command(doctor)
rye.add_command(env)
rye.add_command(fetch)
rye.add_command(search)
rye.add_command(graph)
rye.add_command(init)
rye.add_command(mcp)
rye.add_command(new)
rye.add_command(threads)


@rye.group(cls=HintedGroup)
def keys() -> None:
    """Make your signing key, and say whose keys you trust."""


@keys.command()
@click.option("--owner", default="", help="Whose key it is; your login name by default.")
@json_option
def generate(owner: str, as_json: bool) -> None:
    """Make your signing key and trust it in your user space."""
    with errors_shown(as_json=as_json):
        author = Rye.open(".").keys
        key = author.generate(owner or _login())
        _done(
            {
                "status": "success",
                "fingerprint": key.public.fingerprint,
                "path": str(author.folder),
            },
            f"key {key.public.fingerprint} made in {author.folder}; it is trusted in user space",
            as_json=as_json,
        )


@keys.command("list")
@project_option
@json_option
def list_keys(project_path: str, as_json: bool) -> None:
    """List the keys that there are, and whether they count."""
    with errors_shown(as_json=as_json):
        listed = Rye.open(project_path).trust.listed()
        if as_json:
            show_json({"status": "success", "keys": [_key_fields(one) for one in listed]})
            return
        text = StyledText()
        owner_width = max((len(one.owner) for one in listed), default=0)
        for one in listed:
            until = f"  until {one.not_after}" if one.not_after else ""
            text.line(
                (one.key.fingerprint, "id"),
                (f"  {one.status:<9}", "good" if one.status == "trusted" else "warn"),
                f"  {one.space:<7}  {one.owner:<{owner_width}}",
                (f"{until}  {one.path or ''}", "dim"),
            )
        if not listed:
            text.line("no key is trusted yet; make yours with: rye keys generate")
        show(text)


def _key_fields(one: ListedKey) -> dict[str, object]:
    return {
        "fingerprint": one.key.fingerprint,
        "owner": one.owner,
        "space": one.space,
        "status": one.status,
        "path": str(one.path) if one.path else None,
        "not_after": one.not_after,
        "reason": one.reason or None,
    }


@keys.command()
@click.argument("key_file", metavar="PUBLIC_KEY.pem|KEY.toml", type=click.Path(dir_okay=False))
@click.option("--owner", default="", help="Whose key it is.")
@click.option("--not-after", metavar="UTC", help="When it stops counting: 2027-01-31T00:00:00Z.")
@click.option("--revoke", is_flag=True, help="Write that the key counts no more.")
@click.option("--in-project", is_flag=True, help="Vouch for it in this project's folder alone.")
@click.option("--reinstate", is_flag=True, help="Trust it again although it was revoked.")
@project_option
@json_option
def trust(
    key_file: str,
    owner: str,
    not_after: str | None,
    revoke: bool,
    in_project: bool,
    reinstate: bool,
    project_path: str,
    as_json: bool,
) -> None:
    """Trust somebody's public key: what it signs may run here."""
    with errors_shown(as_json=as_json):
        opened = Rye.open(project_path)
        key, found_owner = _read_public_key(Path(key_file))
        if not (owner := owner or found_owner):
            # A project's file could claim any owner.
            own = [one for one in opened.trust.listed() if one.space == "user"]
            owner = next((one.owner for one in own if one.key == key), "")
        path = opened.keys.trust(
            key,
            owner,
            space=opened.spaces.project if in_project else None,
            not_after=not_after,
            revoked=revoke,
            reinstate=reinstate,
        )
        _done(
            {"status": "success", "fingerprint": key.fingerprint, "path": str(path)},
            f"key {key.fingerprint} is {'revoked' if revoke else 'trusted'}: {path}",
            as_json=as_json,
        )


async def _execute(
    project_path: str,
    ref: str,
    pairs: Sequence[str],
    params: dict[str, Any],
    deps: str | None,
    *,
    is_shown: bool,
    **options: Any,
) -> ExecutionResult:
    forks = options["thread"] == "fork"
    models = models_of(deps, are_wanted=forks)
    async with Rye.open(project_path, **models) as opened:
        schema = None
        if pairs:
            # What refuses the schema refuses the execution too, with the trace if it was wished.
            with suppress(RyeError):
                schema = await opened.schema(ref)
        given = params | read_pairs(pairs, schema)
        if forks and not options["dry_run"]:
            has_models = "agent" in models
            return await execute_fork(
                opened, ref, given, options, has_models=has_models, is_shown=is_shown
            )
        return await opened.execute(ref, given, **options)


def _done(document: dict[str, object], sentence: str, *, as_json: bool) -> None:
    if as_json:
        show_json(document)
    else:
        text = StyledText()
        text.line(("✓ ", "good"), sentence)
        show(text)


def _read_public_key(path: Path) -> tuple[PublicKey, str]:
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise SigningError(
            f"{path} can't be read: {problem.strerror}.",
            next_step="Name the file of a public key. rye keys list shows where each key's stands.",
        ) from None
    pem, owner = content, ""
    if path.suffix == ".toml":
        document = parse_document(content, path)
        table = document.get("public_key")
        pem = str(table.get("pem") if isinstance(table, dict) else None).encode()
        owner = str(document.get("owner", ""))
    try:
        return PublicKey.from_pem(pem), owner
    except SigningError as problem:
        raise SigningError(
            f"{path} holds no public key: {problem.message}",
            next_step="Name a public_key.pem, or the .toml file of a trusted key.",
        ) from None


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
