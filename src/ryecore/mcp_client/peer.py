"""The server at the other end of a connection: its unanswered requests, and its errors.

Errors quote the end of its output. This module doesn't import the SDK: a server is started first.

For each request it is tracked whether it may have reached the server: one that has not can be
repeated. The SDK numbers requests itself and doesn't expose the numbers, so a request is identified
by the context of the task that sends it.
"""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import anyio
from attrs import define, field

from ryecore.display.sanitize import escape_controls, shorten
from ryecore.errors import McpError

__all__ = ["MAX_MESSAGE_BYTES", "Output", "Peer", "PendingRequest", "PendingRequests"]


@define(eq=False)
class PendingRequest:
    """A request that is being sent.

    `is_sent` says whether the server may have received all of it; `status`, with which HTTP status
    it refused it unread, or 0.
    """

    is_sent: bool = False
    status: int = 0

    @property
    def may_have_run(self) -> bool:
        """Whether the server may have begun to process it."""
        return self.is_sent and not self.status


_current: Final[ContextVar[PendingRequest | None]] = ContextVar("request", default=None)


class PendingRequests:
    """The requests of a session that wait for a response."""

    def __init__(self) -> None:
        self._by_id: dict[int | str, PendingRequest] = {}

    @contextmanager
    def track(self) -> Iterator[PendingRequest]:
        """Track the one request that the block sends."""
        request = PendingRequest()
        token = _current.set(request)
        try:
            yield request
        finally:
            _current.reset(token)
            for number, one in tuple(self._by_id.items()):
                if one is request:
                    del self._by_id[number]

    def note_submitted(self, number: int | str) -> None:
        """Note the number of the request that the running task is about to send."""
        request = _current.get()
        if request is not None:
            self._by_id[number] = request

    def mark_sent(self, number: int | str) -> None:
        """Note that the server may have received all of a request."""
        if request := self._by_id.get(number):
            request.is_sent = True

    def mark_unsent(self, number: object) -> None:
        """Note that a request could not be sent after all."""
        if isinstance(number, int | str) and (request := self._by_id.get(number)):
            request.is_sent = False

    def mark_refused(self, number: object, status: int) -> None:
        """Note that the server refused a request unread."""
        if isinstance(number, int | str) and (request := self._by_id.get(number)):
            request.status = status


MAX_MESSAGE_BYTES: Final = 15 * 1024 * 1024
"""The largest message: a result, wrapped, still fits into 16 MiB."""

_MAX_UNREQUESTED: Final = 10_000
_MAX_OUTPUT_CHARS: Final = 4096
_MAX_LINES: Final = 20
_MIN_SECRET: Final = 6
_HIDDEN: Final = "***"
_AT_FAULT_STEP: Final = "Update the server, or tell whoever maintains it."


class Output:
    """The end of what a server writes beside the protocol, such as its standard error.

    Args:
        peer: The server.
        begun: What came before, if it may be the beginning of a secret.
    """

    def __init__(self, peer: "Peer", begun: str = "") -> None:
        self._peer = peer
        self._text = begun

    def add(self, text: str) -> None:
        """Add what came last."""
        # Secrets go first: the rest of a secret that was cut in two would not be recognised.
        self._text = self._peer.without_secrets(self._text + text)[-_MAX_OUTPUT_CHARS:]

    def last_lines(self, most: int = _MAX_LINES) -> str:
        """Return the last lines so far, harmless for a terminal."""
        self._peer.drain()
        text, begun = self._text, self.begun_secret
        if len(begun) >= _MIN_SECRET:
            text = text.removesuffix(begun) + _HIDDEN
        return escape_controls("\n".join(text.strip().splitlines()[-most:]), keep="\n\t")

    @property
    def begun_secret(self) -> str:
        """The end so far that may be the beginning of a secret, whose rest may follow."""
        ends = (_end_in(self._text, one) for one in self._peer.written_secrets())
        return max(ends, key=len, default="")

    def clear(self) -> None:
        """Forget it."""
        self._text = ""


def _nothing() -> None:
    """Read nothing: only a process has output."""


@define(eq=False)
class Peer:
    """The server at the other end of a connection.

    `broken` is set once it can't be used any more, with `problem` and `next_step` to say why.
    Errors leave out the `secrets`. `is_unavailable` says that the last request did not reach it, or
    that a gateway said so. `drain` reads what it has written beside the protocol already.
    """

    name: str
    secrets: Collection[str] = field(repr=False, default=())
    broken: anyio.Event = field(factory=anyio.Event)
    problem: str = ""
    next_step: str = ""
    is_unavailable: bool = False
    pending: PendingRequests = field(factory=PendingRequests)
    drain: Callable[[], None] = _nothing
    _outputs: list[Output] = field(init=False, factory=list)
    _notes: dict[str, str] = field(init=False, factory=dict)
    _unrequested: int = 0

    def __attrs_post_init__(self) -> None:
        self._outputs.append(Output(self))

    def fail(self, problem: str, next_step: str = "") -> None:
        """Mark it as unusable; the first problem counts."""
        if not self.problem:
            self.problem = problem
            self.next_step = self.next_step or next_step
        self.broken.set()

    def add_output(self, text: str) -> None:
        """Keep the end of what it writes beside the protocol, such as its standard error."""
        for output in self._outputs:
            output.add(text)

    @contextmanager
    def collecting(self) -> Iterator[Output]:
        """Collect what it writes beside the protocol while the block runs."""
        self.drain()
        output = Output(self, self._outputs[0].begun_secret)
        self._outputs.append(output)
        try:
            yield output
        finally:
            self._outputs.remove(output)

    def note(self, refusal: str, detail: str = "") -> None:
        """Note a refusal for errors to quote, except those whose problem names it already."""
        self._notes[refusal] = detail

    def forget_output(self) -> None:
        """Forget what it wrote, and what was noted, such as a refusal that was expected."""
        self._outputs[0].clear()
        self._notes.clear()

    def note_response(self) -> None:
        """Note that it sent a response."""
        self._unrequested = 0

    def note_unrequested(self) -> bool:
        """Note a message that isn't a response; return whether there are too many of them."""
        self._unrequested += 1
        if self._unrequested > _MAX_UNREQUESTED:
            self.fail(f"sent more than {_MAX_UNREQUESTED} messages that nobody asked for")
            return True
        return False

    def error(self, problem: str, next_step: str = "") -> McpError:
        """Return an error about it, with the end of its output and without its secrets."""
        output = self._outputs[0]
        notes = [f"{one}{detail}" for one, detail in self._notes.items() if one not in problem]
        said = "\n".join(filter(None, [*notes, output.last_lines(_MAX_OUTPUT_CHARS)]))
        problem = shorten(self.without_secrets(problem))
        text = f"The MCP server '{self.name}' {problem}." + (f" It said: {said}" if said else "")
        stderr = output.last_lines()
        return McpError(
            self.without_secrets(text),
            next_step=next_step or self.next_step or _AT_FAULT_STEP,
            server=self.name,
            **({"stderr": stderr} if stderr else {}),
            **({"is_unavailable": True} if self.is_unavailable else {}),
        )

    def without_secrets(self, text: str) -> str:
        """Return a text without the secrets, whether they stand there as such or as JSON."""
        for written in self.written_secrets():
            text = text.replace(written, _HIDDEN)
        return text

    def written_secrets(self) -> list[str]:
        """Return the secrets as a text may have them, the longest first."""
        secrets = [one for one in self.secrets if len(one) >= _MIN_SECRET]
        return sorted({*secrets, *(json.dumps(one)[1:-1] for one in secrets)}, key=len)[::-1]


def _end_in(text: str, secret: str) -> str:
    """Return the longest end of a text that a secret begins with, and that isn't all of it."""
    lengths = range(min(len(secret) - 1, len(text)), 0, -1)
    return next((secret[:one] for one in lengths if text.endswith(secret[:one])), "")
