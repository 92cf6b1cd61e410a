"""`rye threads approvals`, `approve` and `deny`: calls of tools that wait for a person."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from ryecore.cli.opening import with_threads
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import show, show_json
from ryecore.cli.questions import approval_text
from ryecore.display.sanitize import to_one_line
from ryecore.display.text import StyledText
from ryecore.state.approvals import ThreadApproval
from ryecore.state.model import TERMINAL

if TYPE_CHECKING:
    from ryecore.actions.threads import Threads

__all__ = ["approvals", "approve", "deny"]

_call_option = click.option(
    "--call", metavar="ID", help="The approval or the call, where several wait."
)


@click.command(short_help="List calls of tools that wait for an approval.")
@project_option
@json_option
def approvals(project_path: str, as_json: bool) -> None:
    """List the calls of tools that wait for a person's approval, with their arguments."""
    found = with_threads(project_path, lambda threads: threads.approvals())
    if as_json:
        show_json({"status": "success", "approvals": [one.to_dict() for one in found]})
        return
    text = StyledText()
    for one in found:
        text.add(approval_text(one))
    if not found:
        text.line(("No call waits for an approval.", "dim"))
    show(text)


@click.command(short_help="Approve a call that a thread waits for.")
@click.argument("thread_id", metavar="ID")
@_call_option
@click.option("--reason", default="", help="The reason, for the records.")
@project_option
@json_option
def approve(
    thread_id: str, call: str | None, reason: str, project_path: str, as_json: bool
) -> None:
    """Approve a call of a tool that a thread waits for.

    It holds for exactly this tool and these arguments, which `rye threads approvals` shows.
    """
    _answer(
        project_path,
        lambda threads: threads.approve(thread_id, call, reason=reason),
        as_json=as_json,
    )


@click.command(short_help="Deny a call that a thread waits for.")
@click.argument("thread_id", metavar="ID")
@_call_option
@click.option("--reason", default="", help="The reason, which the model is told.")
@project_option
@json_option
def deny(thread_id: str, call: str | None, reason: str, project_path: str, as_json: bool) -> None:
    """Deny a call of a tool that a thread waits for. The thread continues."""
    _answer(
        project_path,
        lambda threads: threads.deny(thread_id, call, reason=reason),
        as_json=as_json,
    )


def _answer(
    project_path: str, answer: "Callable[[Threads], Awaitable[ThreadApproval]]", *, as_json: bool
) -> None:
    async def answer_and_look(threads: "Threads") -> tuple[ThreadApproval, str]:
        answered = await answer(threads)
        return answered, (await threads.show(answered.thread_id)).status

    answered, status = with_threads(project_path, answer_and_look)
    if as_json:
        show_json({"status": "success", "approval": answered.to_dict()})
        return
    what = "approved" if answered.approved else "denied"
    text = StyledText()
    text.line(f"{what}  {to_one_line(answered.tool_name)}", (f"  {answered.thread_id}", "dim"))
    if status in TERMINAL:
        text.line((f"  it has ended; next: rye threads resume {answered.thread_id}", "dim"))
    show(text)
