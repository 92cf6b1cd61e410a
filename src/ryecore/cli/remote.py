"""`rye remote`: the nodes that a project knows, and what travels to them."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Final

import click

from ryecore.actions.cluster import ClusterStatus
from ryecore.actions.remotes import ClusterCheck, RemoteCheck
from ryecore.cli.groups import HintedGroup
from ryecore.cli.opening import with_project
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import errors_shown, show, show_done, show_json, show_piece
from ryecore.display.live import can_redraw
from ryecore.display.sanitize import to_one_line
from ryecore.display.text import StyledText, brief, byte_size, counted, dollars, status_mark
from ryecore.errors import InputError, RemoteUntrusted
from ryecore.lillux.keys import PublicKey
from ryecore.remote.authoring import check_new
from ryecore.remote.config import MAX_PRIORITY, Remote
from ryecore.remote.plan import PushPlan
from ryecore.rye import Rye

if TYPE_CHECKING:
    from ryecore.remote.protocol.models import Identity
    from ryecore.remote.push import Progress, PushProgress

__all__ = ["push_progress", "remote", "show_plan"]

_BAR_COLUMNS: Final = 30


@click.group(
    cls=HintedGroup, short_help="Name nodes, queues and Ray clusters that run items elsewhere."
)
def remote() -> None:
    """Name nodes, queues and Ray clusters that run items elsewhere, and see what travels there."""


@remote.command("list")
@project_option
@json_option
def list_remotes(project_path: str, as_json: bool) -> None:
    """List nodes, queues and Ray clusters, and where each of them is."""

    async def read(rye: Rye) -> tuple[Remote, ...]:
        return rye.remotes.list()

    found = with_project(project_path, read)
    if as_json:
        show_json({"status": "success", "remotes": [_remote_fields(one) for one in found]})
        return
    text = StyledText()
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        key = one.settings.node_key
        text.line(
            (f"{one.name:<{width}}", "strong"),
            f"  {one.place}",
            ("" if key is None else f"  {key.fingerprint}", "id"),
        )
    if not found:
        text.line("no remote is known yet; add one with: rye remote add NAME URL")
    show(text)


def _remote_fields(one: Remote) -> dict[str, object]:
    """Return a remote as a JSON-ready object, with each key that counts for its kind."""
    settings, include = one.settings, list(one.settings.push.include)
    if settings.kind == "node":
        return {
            "name": one.name,
            "url": one.url,
            "fingerprint": one.key.fingerprint,
            "timeout_s": settings.timeout_s,
            "include": include,
            "secrets": list(settings.secrets),
        }
    travelling = {"travels": settings.travels, "include": include}
    if settings.kind == "queue":
        about = {"queue": str(settings.queue), "priority": settings.priority}
        return {"name": one.name, **about, **travelling}
    return {
        "name": one.name,
        "ray": settings.ray,
        "resources": dict(settings.resources),
        "patience_s": settings.patience_s,
        **travelling,
    }


_include_option = click.option(
    "--include", multiple=True, metavar="PATTERN", help="More files that travel; repeatable."
)


@remote.command("add")
@click.argument("name")
@click.argument("url")
@click.option(
    "--key", "fingerprint", metavar="FINGERPRINT", help="The node's key, in place of a question."
)
@_include_option
@click.option(
    "--default", "is_default", is_flag=True, help="Make it the remote of --target remote."
)
@click.option("--in-project", is_flag=True, help="Add it to the project, not to your user space.")
@click.option("--plain-http", is_flag=True, help="Allow http:// beyond this machine.")
@project_option
@json_option
def add(
    name: str,
    url: str,
    fingerprint: str | None,
    include: Sequence[str],
    is_default: bool,
    in_project: bool,
    plain_http: bool,
    project_path: str,
    as_json: bool,
) -> None:
    """Name a node, once you have confirmed its key, and sign remotes.yaml.

    The node's operator sees the same fingerprint with: rye node show
    """
    url = check_new(name, url, include=include, plain_http=plain_http)
    identity, key = with_project(project_path, lambda rye: rye.remotes.identify(url))
    _confirm_key(url, key, identity, fingerprint, is_shown=not as_json)
    path = Rye.open(project_path).remotes.add(
        name, url, key, include=include, plain_http=plain_http, is_default=is_default,
        in_project=in_project,
    )  # fmt: skip
    show_done(
        f"remote {name} is {url} with the key {key.fingerprint}: {path}",
        {"name": name, "url": url, "fingerprint": key.fingerprint, "path": str(path)},
        steps=[f"rye remote check {name}"],
        as_json=as_json,
    )


def _confirm_key(
    url: str, key: PublicKey, identity: "Identity", fingerprint: str | None, *, is_shown: bool
) -> None:
    """Have a person confirm a node's key, or compare it with the one that was passed."""
    if fingerprint is not None:
        if fingerprint.strip().lower() != key.fingerprint:
            raise RemoteUntrusted(
                f"The node at {url} shows the key {key.fingerprint}, and --key names another one: "
                f"{to_one_line(fingerprint[:80])!r}. Nothing was written.",
                next_step="Ask its operator which key it has (rye node show); pass --key "
                f"{key.fingerprint} only where that is the answer.",
                remote=url,
            )
        return
    if not (is_shown and sys.stdin.isatty()):
        raise InputError(
            f"Nobody can be asked whether {key.fingerprint} is the key of {url}.",
            next_step="Ask the node's operator, and pass it: --key FINGERPRINT",
        )
    text = StyledText()
    text.line("The node at ", (url, "strong"), (f"  ryecore {brief(identity.ryecore, 40)}", "dim"))
    text.line("has the key ", (key.fingerprint, "id"))
    text.line(("Its operator sees it with: rye node show", "dim"))
    show(text)
    if not click.confirm("Is that the key that the operator names?", default=False):
        raise InputError(
            "The key was not confirmed; nothing was written.",
            next_step="Ask the node's operator for the fingerprint of its key.",
        )


@remote.command("add-queue")
@click.argument("name")
@click.argument("address")
@click.option(
    "--priority", type=click.IntRange(1, MAX_PRIORITY), help="A lower number runs earlier; else 1."
)
@click.option("--travels", is_flag=True, help="Let the project travel to its workers.")
@_include_option
@click.option(
    "--default", "is_default", is_flag=True, help="Make it the remote of --target remote."
)
@click.option("--in-project", is_flag=True, help="Add it to the project, not to your user space.")
@project_option
@json_option
def add_queue(
    name: str,
    address: str,
    priority: int | None,
    travels: bool,
    include: Sequence[str],
    is_default: bool,
    in_project: bool,
    project_path: str,
    as_json: bool,
) -> None:
    """Name a queue of the state that machines share, and sign remotes.yaml.

    ADDRESS is that of the state, with the queue's name, such as
    postgresql://rye@db.example.com/agents?schema=shop&queue=batch
    """
    path = Rye.open(project_path).remotes.add_queue(
        name, address, priority=priority, travels=travels, include=include,
        is_default=is_default, in_project=in_project,
    )  # fmt: skip
    show_done(
        f"remote {name} is a queue: {path}",
        {"name": name, "path": str(path)},
        steps=["rye cluster status"],
        as_json=as_json,
    )


@remote.command("add-cluster")
@click.argument("name")
@click.argument("address", default="auto")
@click.option(
    "--resource", "resources", multiple=True, metavar="NAME=AMOUNT",
    help="What each run takes, such as GPU=1.",
)  # fmt: skip
@click.option("--travels", is_flag=True, help="Let the project travel to its workers.")
@_include_option
@click.option(
    "--default", "is_default", is_flag=True, help="Make it the remote of --target remote."
)
@click.option("--in-project", is_flag=True, help="Add it to the project, not to your user space.")
@project_option
@json_option
def add_cluster(
    name: str,
    address: str,
    resources: tuple[str, ...],
    travels: bool,
    include: Sequence[str],
    is_default: bool,
    in_project: bool,
    project_path: str,
    as_json: bool,
) -> None:
    """Name a Ray cluster, and sign remotes.yaml.

    ADDRESS is auto, the cluster of this machine, or that of a client server, such as
    ray://head.example.com:10001.
    """
    path = Rye.open(project_path).remotes.add_cluster(
        name, address, resources=_read_resources(resources), travels=travels,
        include=include, is_default=is_default, in_project=in_project,
    )  # fmt: skip
    show_done(
        f"remote {name} is a Ray cluster: {path}",
        {"name": name, "path": str(path)},
        steps=[f"rye remote check {name}"],
        as_json=as_json,
    )


def _read_resources(written: Sequence[str]) -> dict[str, float]:
    try:
        pairs = [one.partition("=") for one in written]
        return {name: float(amount) for name, _, amount in pairs}
    except ValueError:
        raise InputError(
            f"--resource {' '.join(written)[:80]!r} isn't an amount of a resource.",
            next_step="Write such as --resource GPU=1.",
        ) from None


@remote.command("remove")
@click.argument("name")
@click.option("--in-project", is_flag=True, help="Remove it from the project's own file.")
@project_option
@json_option
def remove(name: str, in_project: bool, project_path: str, as_json: bool) -> None:
    """Forget a remote, and sign remotes.yaml. What runs there continues."""
    path = Rye.open(project_path).remotes.remove(name, in_project=in_project)
    show_done(
        f"remote {name} is removed: {path}", {"name": name, "path": str(path)}, as_json=as_json
    )


async def _check(target: str, rye: Rye) -> RemoteCheck | ClusterCheck | ClusterStatus:
    kind = rye.remotes.kind_of(target)
    if kind == "queue":
        return await rye.cluster.check(target)
    if kind == "ray":
        return await rye.remotes.check_cluster(target)
    return await rye.remotes.check(target)


def _show_cluster(found: ClusterCheck, *, as_json: bool) -> None:
    at, took_ms = found.remote, found.round_trip_ms
    if as_json:
        nodes = [dict(one) for one in found.nodes]
        fields = {**_remote_fields(at), "nodes": nodes, "round_trip_ms": round(took_ms, 2)}
        show_json({"status": "success", **fields})
        return
    text = StyledText()
    head = (at.name, "strong"), f"  {at.place}", (f"  {took_ms:.1f} ms", "dim")
    text.line(status_mark("ok"), *head)
    for node in found.nodes:
        shown = {name: has for name, has in node.items() if not name.startswith("node:")}
        text.line(("  node  ", "dim"), "  ".join(starmap(_amount, shown.items())))
    show(text)


def _show_queue(name: str | None, found: ClusterStatus, *, as_json: bool) -> None:
    if as_json:
        show_json({"status": "success", **found.to_dict()})
        return
    has_workers = any(one.is_alive for one in found.workers)
    text = StyledText()
    text.line(
        status_mark("ok" if has_workers else "warning"),
        (name or "the default remote", "strong"),
        "  is a queue of this state" + ("" if has_workers else "; no worker runs what it gets"),
    )
    text.add(found.render(), "  ")
    show(text)


def _amount(name: str, has: float) -> str:
    return f"{byte_size(int(has)) if name.endswith('memory') else f'{has:g}'} {name}"


@remote.command("check")
@click.argument("name", required=False)
@project_option
@json_option
def check(name: str | None, project_path: str, as_json: bool) -> None:
    """Check that a node can be reached, has its key, and accepts yours.

    Without NAME, that is the default remote. A Ray cluster must have what each run takes. A queue
    is shown with its load and its workers.
    """
    target = _target(name)
    found = with_project(project_path, partial(_check, target))
    if isinstance(found, ClusterCheck):
        _show_cluster(found, as_json=as_json)
        return
    if isinstance(found, ClusterStatus):
        _show_queue(name, found, as_json=as_json)
        return
    status, at = found.status, found.remote
    if as_json:
        show_json({
            "status": "success",
            **_remote_fields(at),
            "ryecore": status.ryecore,
            "protocol": found.identity.protocol,
            "is_accepting": status.is_accepting,
            "running": status.running,
            "max_running": status.max_running,
            "stored_bytes": status.stored_bytes,
            "max_stored_bytes": status.max_stored_bytes,
            "spent_microcents": status.spent_microcents,
            "max_spend_microcents": status.max_spend_microcents,
            "round_trip_ms": round(found.round_trip_ms, 2),
        })  # fmt: skip
        return
    text = StyledText()
    text.line(
        status_mark("ok"),
        (at.name, "strong"),
        f"  {at.url}",
        (f"  {at.key.fingerprint}", "id"),
        (f"  {found.round_trip_ms:.1f} ms", "dim"),
    )
    text.line(("  ryecore  ", "dim"), brief(status.ryecore, 40))
    text.line(("  runs     ", "dim"), f"{status.running} of {status.max_running}")
    stored, most = byte_size(status.stored_bytes), byte_size(status.max_stored_bytes)
    text.line(("  storage  ", "dim"), f"{stored} of {most}")
    limit = status.max_spend_microcents
    spent = dollars(status.spent_microcents)
    text.line(("  spent    ", "dim"), spent if limit is None else f"{spent} of {dollars(limit)}")
    if not status.is_accepting:
        text.line(("  it takes no new runs now", "warn"))
    show(text)


@remote.command("metrics", short_help="Print a node's metrics, in the format of Prometheus.")
@click.argument("name", required=False)
@project_option
def metrics(name: str | None, project_path: str) -> None:
    """Print a node's metrics, in the format of Prometheus, as for its textfile collector.

    Without NAME, that is the default remote. Your key needs the scope rye.node.metrics.
    """
    with errors_shown(as_json=False):
        show_piece(with_project(project_path, lambda rye: rye.remotes.metrics(_target(name))))


@remote.command("push")
@click.argument("name", required=False)
@project_option
@json_option
def push(name: str | None, project_path: str, as_json: bool) -> None:
    """Send what a node lacks of the project. Executing does so by itself.

    Without NAME, that is the default remote.
    """
    target = _target(name)
    with push_progress(is_shown=not as_json) as progress:
        sent = with_project(project_path, lambda rye: rye.remotes.push(target, progress=progress))
    if sent.files:
        sentence = f"{counted(sent.files, 'object')} sent, {byte_size(sent.total_bytes)}"
    else:
        sentence = "the node has all of it; nothing was sent"
    document = {"objects": sent.files, "sent_bytes": sent.total_bytes}
    show_done(sentence, document, as_json=as_json)


@contextmanager
def push_progress(*, is_shown: bool) -> "Iterator[Progress | None]":
    """Show how far a push is as a bar, on a terminal."""
    out = sys.stderr
    if not is_shown or not can_redraw(out):
        yield None
        return
    is_drawn = False

    def draw(done: "PushProgress") -> None:
        nonlocal is_drawn
        is_drawn = True
        share = done.sent_bytes / done.total_bytes if done.total_bytes else 1.0
        bar = "█" * round(share * _BAR_COLUMNS)
        sizes = f"{byte_size(done.sent_bytes)} of {byte_size(done.total_bytes)}"
        with suppress(OSError, UnicodeEncodeError):
            out.write(f"\r\x1b[2Kpushing  {bar:<{_BAR_COLUMNS}}  {sizes}")
            out.flush()

    try:
        yield draw
    finally:
        if is_drawn:
            with suppress(OSError):
                out.write("\r\x1b[2K")
                out.flush()


@remote.command("plan")
@click.argument("name", required=False)
@project_option
@json_option
def plan(name: str | None, project_path: str, as_json: bool) -> None:
    """Show which files would travel to a remote, and which are left out. Nothing is sent.

    Without NAME, that is the default remote.
    """
    target = None if name is None else f"remote:{name}"
    show_plan(with_project(project_path, lambda rye: rye.remotes.plan(target)), as_json=as_json)


def show_plan(found: PushPlan, *, as_json: bool) -> None:
    """Print what would travel."""
    if as_json:
        show_json({"status": "success", **found.to_dict()})
    else:
        show(found.render())


def _target(name: str | None) -> str:
    """Return the target of a remote; that of the default one without a name."""
    return "remote" if name is None else f"remote:{name}"
