"""The questions whether calls of a thread are approved, at a terminal; elsewhere the command.

Source: decision 81.
"""

import os
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

import anyio

from ryecore.cli.output import tell
from ryecore.convert.json_text import indented_json
from ryecore.display.sanitize import to_one_line
from ryecore.display.text import StyledText, approval_words, status_mark
from ryecore.errors import RyeError
from ryecore.rye import Rye

if TYPE_CHECKING:
    from ryecore.cli.live_tree import LiveTree
    from ryecore.state.approvals import ThreadApproval
    from ryecore.threads.tree_node import TreeNode

__all__ = ["ApprovalQuestions", "approval_text", "is_at_terminal", "read_line"]

_YES: Final = ("y", "yes")
_NO: Final = ("n", "no")
_MAX_LINE_BYTES: Final = 4096


def approval_text(one: "ThreadApproval") -> StyledText:
    """Render a call that waits: its tool, its thread, the reason, and the exact arguments."""
    text = StyledText()
    text.line((one.id, "strong"), "  ", to_one_line(one.tool_name), (f"  {one.thread_id}", "dim"))
    text.add(_details(one))
    return text


def _details(one: "ThreadApproval") -> StyledText:
    text = StyledText()
    text.line((f"  {to_one_line(one.reason)}", "dim"))
    for line in indented_json(dict(one.arguments), ascii_only=True).splitlines():
        text.line(f"  {line}")
    return text


class ApprovalQuestions:
    """Asks a person at the terminal about the calls of a tree of threads, one after the other.

    Where nobody can be asked, the command that approves is printed. Any other process may answer
    meanwhile: then the question is withdrawn.
    """

    def __init__(self, rye: Rye, live: "LiveTree | None") -> None:
        self._rye = rye
        self._live = live
        self._asks = is_at_terminal()
        self._told: set[str] = set()
        self._waiting: dict[str, ThreadApproval] = {}
        self._tree: TreeNode | None = None
        self._has_ended = False
        self._asked: str | None = None
        self._question = anyio.CancelScope()
        self._changed = anyio.Event()

    def draw(self, tree: "TreeNode") -> None:
        """Draw the state of the threads, unless a question stands; note which calls wait."""
        self._tree = tree
        self._waiting = {each.id: each for one in tree.walk() for each in one.approvals}
        if self._asked is not None:
            if self._asked not in self._waiting:
                self._question.cancel()
            return
        if self._live is not None:
            self._live.draw(tree)
        if self._waiting.keys() - self._told:
            self._changed.set()

    def end(self) -> None:
        """Ask no more: the threads have ended."""
        self._has_ended = True
        self._changed.set()

    async def answer(self) -> None:
        """Ask about each call that waits, and pass the answers on, until `end` is called."""
        while not self._has_ended:
            await self._changed.wait()
            self._changed = anyio.Event()
            while new := [one for one in self._waiting.values() if one.id not in self._told]:
                self._told.add(new[0].id)
                if self._asks:
                    await self._ask(new[0])
                elif self._live is None:  # the drawn tree names the command
                    self._tell_command(new[0])

    async def _ask(self, one: "ThreadApproval") -> None:
        self._asked = one.id
        if self._live is not None:
            self._live.release()
        answer, text = None, StyledText()
        with anyio.CancelScope() as self._question:
            answer = await self._answer_to(one)
        self._asked = None
        if self._question.cancelled_caught:
            text.line()
            text.line("  It was answered elsewhere, or its thread has ended.")
        elif answer is not None:
            try:
                if answer is True:
                    await self._rye.threads.approve(one.thread_id, one.id)
                else:
                    await self._rye.threads.deny(one.thread_id, one.id, reason=answer)
            except RyeError as problem:  # it was answered at the same time
                text.line(f"  {problem.message}")
        if text.lines:
            tell(text)
        if self._live is not None:
            self._live.take()
            if self._tree is not None and one.id not in self._waiting:
                self._live.draw(self._tree)

    async def _answer_to(self, one: "ThreadApproval") -> str | Literal[True] | None:
        """Return True for yes, the reason for no, and None where nobody answers."""
        text = StyledText()
        name = to_one_line(one.tool_name)
        asks = (f"  {one.thread_id} asks to call it", "dim")
        text.line(status_mark("waiting"), (name, "strong"), asks)
        text.add(_details(one))
        tell(text)
        termios.tcflush(0, termios.TCIFLUSH)  # what was typed before answers nothing
        while True:
            said = await read_line("  approve? [y/n] ")
            if said is None:
                self._asks = False
                self._tell_command(one)
                return None
            if said.lower() in _YES:
                return True
            if said.lower() in _NO:
                return await read_line("  why not? [Enter for no reason] ") or ""

    def _tell_command(self, one: "ThreadApproval") -> None:
        waits, command = approval_words(one.thread_id, [one.tool_name])
        text = StyledText()
        text.line(status_mark("waiting"), f"{waits}: {command} --call {one.id}")
        tell(text)


def is_at_terminal() -> bool:
    """Return whether a person can be asked: at a terminal, and not in its background."""
    streams = (sys.stdin, sys.stderr)
    if any(one is None or not one.isatty() for one in streams):
        return False
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # no terminal that controls jobs
        return True


async def read_line(prompt: str) -> str | None:
    """Return a line that is typed; None for the end of the input. It can be cancelled."""
    with suppress(OSError):
        sys.stderr.write(prompt)
        sys.stderr.flush()
    typed = b""
    while not typed.endswith(b"\n"):
        await anyio.wait_readable(0)
        try:
            piece = os.read(0, _MAX_LINE_BYTES)
        except OSError:  # a terminal that has gone
            return None
        if not piece:
            tell(StyledText([[]]))
            return None
        typed = (typed + piece)[-_MAX_LINE_BYTES:]
    return typed.decode(errors="replace").strip()
