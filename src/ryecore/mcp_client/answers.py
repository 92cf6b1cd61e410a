"""The host's answers to what a connector asks while a call runs."""

import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from ryecore.errors import RyeError
from ryecore.mcp_client.wire import encode_json, send_frame
from ryecore.policy.authorization import AuthorizationRequest

if TYPE_CHECKING:
    from ryecore.policy.authorization import Authorize

__all__ = ["Answers"]

T = TypeVar("T")
_logger: Final = logging.getLogger(__name__)


class Answers:
    """Answers the questions of one call, on its socket.

    Args:
        connection: The call's socket.
        authorize: Sends a person to an authorization server; None where nobody can be sent.
    """

    def __init__(self, connection: socket.socket, authorize: "Authorize | None") -> None:
        self._connection = connection
        self._authorize = authorize
        self._sending = anyio.Lock()

    @property
    def can(self) -> Mapping[str, object]:
        """What can be answered, and what the connector has to know of it."""
        return {} if self._authorize is None else {"authorize": self._authorize.redirect_uri}

    async def serve(self, receive: Callable[[Callable[[bytes], None]], Awaitable[T]]) -> T:
        """Receive the response of a call, and answer its questions meanwhile."""
        results: list[T] = []
        problem: Exception | None = None
        async with anyio.create_task_group() as answering:

            def ask(question: bytes) -> None:
                answering.start_soon(self._answer, json.loads(question))

            try:
                results.append(await receive(ask))
            except Exception as error:  # not through the group, which would wrap it
                problem = error
            answering.cancel_scope.cancel()
        if problem is not None:
            raise problem
        return results[0]

    async def _answer(self, question: Mapping[str, Any]) -> None:
        answer: dict[str, object] = {"id": question["id"]}
        try:
            answer["result"] = await self._result(question["params"])
        except RyeError as refusal:
            answer |= {"error": refusal.message, "next_step": refusal.next_step}
        except Exception:
            _logger.exception("A question of an MCP server was not answered")
            answer |= {"error": "The host failed to answer; see its log.", "next_step": ""}
        with anyio.CancelScope(shield=True):
            async with self._sending:
                try:
                    await send_frame(self._connection, b"Y", encode_json(answer))
                except OSError:  # the connector is gone
                    return

    async def _result(self, params: Mapping[str, Any]) -> Mapping[str, object]:
        if self._authorize is None:
            raise AssertionError("the connector asks only what can be answered")
        request = AuthorizationRequest(str(params["server"]), str(params["url"]))
        return {"url": await self._authorize(request)}
