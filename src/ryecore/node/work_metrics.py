"""The metrics of queues and workers over HTTP, as a worker serves them. Needs the extra server.

Source: docs/design/queues.md.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ryecore.errors import RyeError
from ryecore.rye import Rye
from ryecore.serving import listen, serve_app, url_of

__all__ = ["serve_metrics"]

_FORMAT: Final = "text/plain; version=0.0.4"
_MAX_CONNECTIONS: Final = 16


async def serve_metrics(
    rye: Rye, host: str, port: int, announce: Callable[[str], None] = lambda _: None
) -> None:
    """Serve `/metrics` until cancelled, by plain HTTP.

    Args:
        rye: The open Rye, whose state has the queues.
        host: The address to listen at.
        port: The port; 0 for any free one.
        announce: Called with the URL once it is served.

    Raises:
        ConfigError: Nothing can listen there.
    """

    async def metrics(_: Request) -> Response:
        try:
            return Response((await rye.cluster.status()).metrics(), media_type=_FORMAT)
        except RyeError as error:
            return PlainTextResponse(f"{error}\n", status_code=503)

    app = Starlette(routes=[Route("/metrics", metrics)])
    with listen(host, port) as listening:
        tell = partial(announce, f"{url_of(listening, host)}/metrics")
        await serve_app(
            app, listening, max_connections=_MAX_CONNECTIONS, runs_lifespan=False, announce=tell
        )
