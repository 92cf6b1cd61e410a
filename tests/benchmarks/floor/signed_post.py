"""The least that a signed call over HTTP takes: a bare Starlette that proves, answers and signs.

`python -m tests.benchmarks.floor.signed_post CALLER_PEM` prints the port, and then serves.
"""

import sys
import time

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ryecore import SigningKey
from ryecore.lillux.keys import PublicKey
from ryecore.remote.protocol.signatures import (
    check_digest,
    combine_headers,
    read_request,
    sign_response,
)
from ryecore.serving import listen

ANSWER = b'{"status":"completed"}'


def main(caller_pem: str) -> None:
    """Serve until killed."""
    caller, own = PublicKey.from_pem(caller_pem), SigningKey.generate()

    async def execute(request: Request) -> Response:
        body = await request.body()
        headers = combine_headers(request.scope["headers"])
        read_request(
            method=request.method,
            authority=headers["host"],
            path=request.url.path,
            query=request.url.query,
            headers=headers,
        ).check(caller)
        check_digest(headers, body)
        signed = sign_response(own, status=200, body=ANSWER, request=headers, now_s=_now_s())
        return Response(ANSWER, headers=signed)

    app = Starlette(routes=[Route("/execute", execute, methods=["POST"])])
    with listen("127.0.0.1", 0) as listening:
        print(listening.getsockname()[1], own.public.pem.decode().replace("\n", "|"), flush=True)
        config = uvicorn.Config(app, log_level="error")
        uvicorn.Server(config).run(sockets=[listening])


def _now_s() -> int:
    return int(time.time())


if __name__ == "__main__":
    main(sys.argv[1])
