"""`rye remote`: the nodes that a project knows, and what travels to them."""

import click

from ryecore.cli.groups import HintedGroup
from ryecore.cli.opening import with_project
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import show, show_json
from ryecore.display.text import StyledText
from ryecore.remote.config import Remote
from ryecore.remote.plan import PushPlan
from ryecore.rye import Rye

__all__ = ["remote", "show_plan"]


@click.group(cls=HintedGroup, short_help="Name the nodes that run items of a project elsewhere.")
def remote() -> None:
    """Name the nodes that run items of a project elsewhere, and see what travels to them."""


@remote.command("list")
@project_option
@json_option
def list_remotes(project_path: str, as_json: bool) -> None:
    """List the remotes, with their URLs and the fingerprints of their keys."""

    async def read(rye: Rye) -> tuple[Remote, ...]:
        return rye.remotes.list()

    found = with_project(project_path, read)
    if as_json:
        show_json({"status": "success", "remotes": [_remote_fields(one) for one in found]})
        return
    text = StyledText()
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        text.line(
            (f"{one.name:<{width}}", "strong"), f"  {one.url}", (f"  {one.key.fingerprint}", "id")
        )
    if not found:
        text.line("no remote is known yet; add one with: rye remote add NAME URL")
    show(text)


def _remote_fields(one: Remote) -> dict[str, object]:
    return {
        "name": one.name,
        "url": one.url,
        "fingerprint": one.key.fingerprint,
        "timeout_s": one.settings.timeout_s,
        "include": list(one.settings.push.include),
        "secrets": list(one.settings.secrets),
    }


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
