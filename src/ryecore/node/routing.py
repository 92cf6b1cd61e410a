"""Starlette with one route that its layers don't slow down."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

__all__ = ["RoutedApp"]

Handler = Callable[[Request], Awaitable[Response]]


class RoutedApp(Starlette):
    """An application whose most frequent request goes to its handler at once.

    The route is among the others, too: where the application has middleware, that comes first.

    Args:
        method: The method of that request.
        path: Its path.
        handler: Answers it, and raises nothing.
        more: What Starlette takes.
    """

    def __init__(self, method: str, path: str, handler: Handler, **more: Any) -> None:
        super().__init__(**more)
        self._method = method
        self._path = path
        self._handler = handler

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] != self._method
            or scope["path"] != scope.get("root_path", "") + self._path
            or self.user_middleware
        ):
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        response = await self._handler(Request(scope, receive, send))
        await response(scope, receive, send)
