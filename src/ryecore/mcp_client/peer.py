"""What is known of the server at the other end: what it said, and why it can't be used any more."""

import json
from collections.abc import Collection
from typing import Final

import anyio
from attrs import define, field

from ryecore.errors import McpError
from ryecore.mcp_client.delivery import Deliveries

__all__ = ["MAX_MESSAGE_BYTES", "Peer"]

MAX_MESSAGE_BYTES: Final = 15 * 1024 * 1024
"""How large one message may be; a result that is wrapped then still fits into 16 MiB."""

_MAX_UNASKED: Final = 10_000
_MAX_SAID: Final = 4096
_MIN_SECRET: Final = 6


@define
class Peer:
    """A server.

    Attributes:
        name: What errors call it.
        secrets: Values that no error repeats.
        broken: Set once it can't be used any more.
        problem: Why; empty until then.
        next_step: The next step that follows from its answers; empty for none.
        deliveries: The requests that it hasn't answered.
    """

    name: str
    secrets: Collection[str] = field(repr=False, default=())
    broken: anyio.Event = field(factory=anyio.Event)
    problem: str = ""
    next_step: str = ""
    deliveries: Deliveries = field(factory=Deliveries)
    _said: str = ""
    _unasked: int = 0

    def fail(self, problem: str) -> None:
        """Say why it can't be used any more; the first reason counts."""
        self.problem = self.problem or problem
        self.broken.set()

    def heard(self, text: str) -> None:
        """Keep what it said beside the protocol; the end of it."""
        # Secrets go first: what is left of one that was cut in two would not be known as one.
        self._said = self.without_secrets(self._said + text)[-_MAX_SAID:]

    def answered(self) -> None:
        """It answered."""
        self._unasked = 0

    def unasked(self) -> bool:
        """It sent something that is no answer; whether that is too much by now."""
        self._unasked += 1
        if self._unasked > _MAX_UNASKED:
            self.fail(f"sent more than {_MAX_UNASKED} messages that nobody asked for")
            return True
        return False

    def error(self, problem: str, next_step: str = "") -> McpError:
        """An error about it, with the end of what it said, and without its secrets."""
        said = self._said.strip()
        text = f"The MCP server '{self.name}' {problem}." + (f" It said: {said}" if said else "")
        return McpError(
            self.without_secrets(text), next_step=next_step or self.next_step, server=self.name
        )

    def without_secrets(self, text: str) -> str:
        """A text in which no secret of this server stands, plainly or as JSON writes it."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= _MIN_SECRET:
                text = text.replace(secret, "***").replace(json.dumps(secret)[1:-1], "***")
        return text
