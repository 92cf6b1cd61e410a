"""The host's answers to what a connector asks while a call runs."""

import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from ryecore.errors import InputError, RyeError
from ryecore.mcp_client.wire import encode_json, send_frame
from ryecore.policy.authorization import AuthorizationRequest, Login
from ryecore.policy.permissions import ASK_KINDS
from ryecore.policy.reports import ReportAllowance

if TYPE_CHECKING:
    from ryecore.policy.authorization import Authorize
    from ryecore.policy.reports import ToolCaller

__all__ = ["Answers"]

T = TypeVar("T")
_MAX_OPEN_QUESTIONS: Final = 8
_logger: Final = logging.getLogger(__name__)


class Answers:
    """Answers the questions of one call, on its socket.

    Args:
        connection: The call's socket.
        authorize: Sends a person to an authorization server; None where nobody can be sent.
        caller: Who gets reports, and is asked; None where nobody is.
    """

    def __init__(
        self,
        connection: socket.socket,
        authorize: "Authorize | None",
        caller: "ToolCaller | None" = None,
    ) -> None:
        self._connection = connection
        self._authorize = authorize
        self._caller = caller
        self._allowance = ReportAllowance(anyio.current_time())
        self._sending = anyio.Lock()
        self._open = 0

    @property
    def can(self) -> Mapping[str, object]:
        """What can be answered, and what the connector has to know of it."""
        can: dict[str, object] = {}
        if self._authorize is not None:
            can["authorize"] = self._authorize.redirect_uri
            if isinstance(self._authorize, Login):
                can["login"] = self._authorize.login_scope
        if self._caller is not None:
            can |= {kind: True for kind in ASK_KINDS if self._caller.may_ask(kind)}
            if self._caller.wants_reports:
                can["reports"] = True
        return can

    def report(self, payload: bytes) -> None:
        """Pass on a report of the server."""
        caller = self._caller
        if caller is None or not self._allowance.take(anyio.current_time()):
            return
        said = json.loads(payload)
        if "level" in said:
            caller.log(said["level"], said["data"], said["logger"])
        else:
            caller.progress(said["progress"], said["total"], said["message"])

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
        self._open += 1
        try:
            if self._open > _MAX_OPEN_QUESTIONS:
                raise InputError(f"{_MAX_OPEN_QUESTIONS} questions are open already.")
            answer["result"] = await self._result(str(question["kind"]), question["params"])
        except RyeError as refusal:
            answer |= {"error": refusal.message, "next_step": refusal.next_step}
        except Exception:
            _logger.exception("A question of an MCP server was not answered")
            answer |= {"error": "The host failed to answer; see its log.", "next_step": ""}
        finally:
            self._open -= 1
        with anyio.CancelScope(shield=True):
            async with self._sending:
                try:
                    await send_frame(self._connection, b"Y", encode_json(answer))
                except OSError:  # the connector is gone
                    return

    async def _result(self, kind: str, params: Mapping[str, Any]) -> Mapping[str, object]:
        if kind == "authorize" and self._authorize is not None:
            request = AuthorizationRequest(str(params["server"]), str(params["url"]))
            return {"url": await self._authorize(request)}
        if self._caller is not None and kind in ASK_KINDS:
            return await self._caller.answer(kind, str(params["key"]), params["params"])
        raise AssertionError("the connector asks only what can be answered")
