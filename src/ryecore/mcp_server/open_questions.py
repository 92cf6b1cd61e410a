"""The questions of one call that its client has not answered yet, by the keys that it answers."""

import secrets
from collections.abc import Mapping, MutableMapping

import anyio
import mcp_types as types

from ryecore.errors import InputError
from ryecore.mcp_server.asking import ClientRequest, read_response, request_of
from ryecore.policy.reports import ToolQuestion

__all__ = ["OpenQuestions"]


class _OpenQuestion:
    """A question, and the client's response once it has come."""

    def __init__(self, request: ClientRequest) -> None:
        self.request = request
        self.response: object = None
        self.answered = anyio.Event()


class OpenQuestions:
    """The open questions of one call.

    Args:
        are_keys_used_once: Whether no key comes again after it was answered.

    Attributes:
        early: Responses that came before their question.
        changed: Set, and replaced, with each new question and by `notify`.
    """

    def __init__(self, *, are_keys_used_once: bool = False) -> None:
        self.early: MutableMapping[str, object] = {}
        self.changed = anyio.Event()
        self._used: set[str] | None = set() if are_keys_used_once else None
        self._open: dict[str, _OpenQuestion] = {}

    async def ask(
        self, question: ToolQuestion, offered: types.ClientCapabilities | None
    ) -> Mapping[str, object]:
        """Wait for the client's response, and return it as the answer of a question.

        Args:
            question: The question of a tool.
            offered: The capabilities of the client.

        Raises:
            InputError: The client doesn't offer that, or the response isn't one to the question.
        """
        request = request_of(question, offered)
        key = name = question.key or question.kind
        while key in self._open or (self._used is not None and key in self._used):
            key = f"{name}-{secrets.token_hex(4)}"
        if self._used is not None:
            self._used.add(key)
        if key in self.early:
            return await read_response(question, self.early.pop(key))
        self._open[key] = opened = _OpenQuestion(request)
        self.notify()
        try:
            await opened.answered.wait()
        finally:
            del self._open[key]
        if isinstance(opened.response, InputError):
            raise opened.response
        return await read_response(question, opened.response)

    def notify(self) -> None:
        """Wake those who wait for a question."""
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    def answer(self, responses: MutableMapping[str, object]) -> None:
        """Answer open questions by their keys; what answers none is left in the responses.

        An `InputError` says that the client gave no answer.
        """
        for key, opened in self._open.items():
            if key in responses and not opened.answered.is_set():
                opened.response = responses.pop(key)
                opened.answered.set()

    def waiting(self) -> dict[str, ClientRequest]:
        """Return what the client has to respond to, by key."""
        return {
            key: opened.request
            for key, opened in self._open.items()
            if not opened.answered.is_set()
        }
