"""The channel of a call: a tool's reports and questions while it runs, and the answers.

It is a named pipe that the tool writes lines to, and for a tool that may ask a second one that it
reads answers from. A tool opens them by name if it wants to, so no descriptor is inherited, and a
template that was forked ahead needs nothing. The host holds both ends of each, so that opening
never blocks a tool, and reads and writes without blocking.

Source: docs/reference/call-channel.md.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup

from ryecore.chain.channel_folder import ChannelFolder
from ryecore.chain.channel_lines import (
    MAX_LINE_BYTES,
    AskLine,
    Lines,
    ProgressLine,
    read_channel_line,
    write_answer,
)
from ryecore.errors import RyeError
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.lillux.processes import ProcessResult
from ryecore.policy.context import CallContext
from ryecore.policy.environment import ANSWERS, CHANNEL
from ryecore.policy.reports import (
    Ask,
    LogLevel,
    ReportAllowance,
    ToolLog,
    ToolProgress,
    ToolQuestion,
    ToolReport,
    send_report,
    why_not_asked,
)

__all__ = ["CallChannel"]

_PAUSE_S: Final = 0.01
"""The time between two readings of a channel: a tool that writes without end costs little."""

_LINES_A_PAUSE: Final = 128
_LAST_LINES: Final = 16 * 1024
_MAX_OPEN_QUESTIONS: Final = 8
_MAX_UNREAD_REFUSALS: Final = 256
_MAX_ANSWER_BYTES: Final = 1024 * 1024
_MAX_PROBLEM_CHARS: Final = 200

_logger = logging.getLogger(__name__)


class _Pipe:
    """A named pipe that the host can read and write without blocking."""

    __slots__ = ("fd", "path")

    def __init__(self, folder: ChannelFolder) -> None:
        self.path = folder.make_pipe()
        try:
            # With both ends open, neither the host nor the tool waits for the other to open it.
            self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            Path(self.path).unlink()
            raise

    def close(self) -> None:
        os.close(self.fd)
        with suppress(OSError):
            Path(self.path).unlink()


@frozen
class _Caller:
    """The tool whose channel it is, and who called it."""

    ref: ItemRef
    may_ask: tuple[str, ...]
    ctx: CallContext
    ask: Ask | None


class CallChannel:
    """The host's side of one call's channel.

    Args:
        folder: Where its pipes are made.
        ref: The tool.
        may_ask: The kinds of questions that its signed file declares.
        ctx: The call, whose sinks get the reports.
        ask: Answers questions, unless the call has an `ask` of its own.

    Raises:
        OSError: A pipe can't be made.
    """

    def __init__(
        self,
        folder: ChannelFolder,
        ref: ItemRef,
        may_ask: tuple[str, ...],
        ctx: CallContext,
        ask: Ask | None,
    ) -> None:
        self._caller = _Caller(ref, may_ask, ctx, ctx.ask or ask)
        self._reports = _Pipe(folder)
        try:
            self._answers = _Pipe(folder) if may_ask else None
        except OSError:
            self._reports.close()
            raise
        self._lines = Lines()
        self._allowance = ReportAllowance(anyio.current_time())
        self._writing = anyio.Lock()
        self._open: set[str] = set()
        self._refusals = 0
        self._late: ToolProgress | None = None
        self._dropped = 0
        self._wrong = 0
        self._problem = ""

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the variables that name the pipes to the tool."""
        variables = {CHANNEL: self._reports.path}
        if self._answers is not None:
            variables[ANSWERS] = self._answers.path
        return variables

    async def serve(self, run: Callable[[], Awaitable[ProcessResult]]) -> ProcessResult:
        """Run the tool's process, serve its channel meanwhile, and close it."""
        done: ProcessResult | None = None
        problem: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listen, tasks)
                try:
                    done = await run()
                except Exception as error:
                    problem = error
                tasks.cancel_scope.cancel()
            if done is not None:
                await self._finish()
        finally:
            self._reports.close()
            if self._answers is not None:
                self._answers.close()
        if done is None:
            raise problem or AssertionError
        return done

    async def _listen(self, tasks: TaskGroup) -> None:
        while True:
            if not self._lines.has_line:
                await anyio.wait_readable(self._reports.fd)
                self._lines.add(self._read())
            self._take(_LINES_A_PAUSE, tasks)
            await anyio.sleep(_PAUSE_S)

    def _read(self) -> bytes:
        try:
            return os.read(self._reports.fd, MAX_LINE_BYTES)
        except BlockingIOError:  # the tool has read what it wrote
            return b""

    async def _finish(self) -> None:
        """Pass on what was written last, and what of it all was not passed on."""
        left = _LAST_LINES
        self._lines.add(self._read())
        while self._lines.has_line and left > 0:
            self._take(_LINES_A_PAUSE, None)
            left -= _LINES_A_PAUSE
            await anyio.lowlevel.checkpoint()
        if self._late is not None:
            self._send(self._late)
        if self._dropped:
            self._note(f"{self._dropped} reports came too fast, and were dropped")
        if self._wrong:
            self._note(f"{self._wrong} lines of its channel can't be read; one: {self._problem}")

    def _take(self, count: int, tasks: TaskGroup | None) -> None:
        for line in self._lines.take(count):
            if line is None:
                self._refuse(f"it has more than {MAX_LINE_BYTES} bytes")
                continue
            try:
                self._read_line(line, tasks)
            except (ValueError, RecursionError) as problem:
                self._refuse(str(problem))

    def _read_line(self, line: bytes, tasks: TaskGroup | None) -> None:
        found = read_channel_line(line)
        ref, call_id = str(self._caller.ref), self._caller.ctx.call_id
        if isinstance(found, AskLine):
            if self._answers is None:
                raise ValueError("it asks, and the tool's signed file declares no may_ask")
            if tasks is not None:
                self._begin(found, tasks)
            return
        report: ToolReport
        if isinstance(found, ProgressLine):
            report = ToolProgress(ref, call_id, found.progress, found.total, found.message)
        else:
            report = ToolLog(ref, call_id, found.level, found.data, found.logger)
        if self._allowance.take(anyio.current_time()):
            if isinstance(report, ToolProgress):
                self._late = None
            self._send(report)
        elif isinstance(report, ToolProgress):
            self._late = report  # the latest one says all
        else:
            self._dropped += 1

    def _refuse(self, problem: str) -> None:
        self._wrong += 1
        self._problem = self._problem or problem[:_MAX_PROBLEM_CHARS]

    def _note(self, text: str, level: LogLevel = "warning") -> None:
        ref, call_id = str(self._caller.ref), self._caller.ctx.call_id
        self._send(ToolLog(ref, call_id, level, text, "ryecore"))

    def _send(self, report: ToolReport) -> None:
        send_report(self._caller.ctx, report)

    # Questions

    def _begin(self, line: AskLine, tasks: TaskGroup) -> None:
        caller, key = self._caller, str(line.id)
        error = why_not_asked(line.kind, caller.ref.id, caller.may_ask, caller.ctx.capabilities)
        if error is None and caller.ask is None:
            error = "Nobody is there to answer: the host has no ask callback."
        if error is None and key in self._open:
            error = f"Another question with the id {key!r} is open."
        if len(self._open) >= _MAX_OPEN_QUESTIONS:
            error = f"{_MAX_OPEN_QUESTIONS} questions are open already."
        if error is None and caller.ask is not None:
            self._open.add(key)
            tasks.start_soon(self._answer, line, key, caller.ask)
        elif self._refusals < _MAX_UNREAD_REFUSALS:
            self._refusals += 1
            tasks.start_soon(self._write_refusal, write_answer(line.id, error=error or ""))
        else:  # it asks on and on, and reads no answer
            self._refuse("it asks, and its answers aren't read")

    async def _answer(self, line: AskLine, key: str, ask: Ask) -> None:
        caller = self._caller
        question = ToolQuestion(str(caller.ref), caller.ctx.call_id, key, line.kind, line.params)
        try:
            answer = write_answer(line.id, result=await ask(question))
            if len(answer) > _MAX_ANSWER_BYTES:
                answer = write_answer(
                    line.id, error=f"The answer has more than {_MAX_ANSWER_BYTES} bytes."
                )
        except RyeError as refusal:
            answer = write_answer(line.id, error=str(refusal))
        except Exception:
            _logger.exception("A question of %s was not answered", caller.ref)
            answer = write_answer(line.id, error="The host failed to answer; see its log.")
        await self._write(answer)
        self._open.discard(key)

    async def _write_refusal(self, answer: bytes) -> None:
        await self._write(answer)
        self._refusals -= 1

    async def _write(self, answer: bytes) -> None:
        """Write an answer, for as long as the tool takes to read it."""
        if self._answers is None:
            raise AssertionError
        left = memoryview(answer)
        async with self._writing:
            while left:
                try:
                    left = left[os.write(self._answers.fd, left) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._answers.fd)
