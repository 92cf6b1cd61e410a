"""The floor of a node: bare POSTs, each signed and proved once at each end, and files by hand.

`python -m tests.benchmarks.floor.signed_posts FOLDER` serves; it stores pushed files in FOLDER.
"""

import hashlib
import json
import os
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ryecore.lillux.keys import SigningKey
from ryecore.serving import listen, serve_app, url_of

__all__ = ["KEY", "SignedPosts", "signed_posts"]

KEY: Final = SigningKey.from_pem(
    b"-----BEGIN PRIVATE KEY-----\n"
    + b64encode(bytes.fromhex("302e020100300506032b657004220420") + bytes(range(32)))
    + b"\n-----END PRIVATE KEY-----\n"
)
"""The key of both ends, which is no secret."""


class SignedPosts:
    """A client of the bare server, with one connection for each request at once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx2.AsyncClient(timeout=60, trust_env=False)

    async def post(self, path: str, body: bytes) -> bytes:
        """Post a signed body, and return the proved answer."""
        headers = {"Signature": b64encode(KEY.sign(body)).decode()}
        answer = await self._http.post(self._url + path, content=body, headers=headers)
        content: bytes = answer.content
        if not KEY.public.verifies(b64decode(answer.headers["signature"]), content):
            raise ValueError("the answer isn't signed")
        return content

    async def push(self, folder: Path) -> int:
        """Hash all files, and send those that the server lacks in one body; return how many."""
        found: dict[str, str] = {}
        for where, _, names in os.walk(folder):
            for name in names:
                path = f"{where}/{name}"
                with open(path, "rb") as file:
                    found[hashlib.sha256(file.read()).hexdigest()] = path
        missing = json.loads(await self.post("/offer", json.dumps([*found]).encode()))
        if missing:
            await self.post("/files", b"".join(_piece(found[one]) for one in missing))
        return len(missing)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def _piece(path: str) -> bytes:
    with open(path, "rb") as file:
        content = file.read()
    return len(content).to_bytes(8, "little") + content


@contextmanager
def signed_posts(folder: Path) -> Iterator[str]:
    """Run the server in a process of its own; the URL."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", __name__, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def _app(folder: Path) -> Starlette:
    def answer(content: bytes) -> Response:
        headers = {"Signature": b64encode(KEY.sign(content)).decode()}
        return Response(content, headers=headers, media_type="application/json")

    async def read(request: Request) -> bytes:
        body = await request.body()
        if not KEY.public.verifies(b64decode(request.headers["signature"]), body):
            raise ValueError("the request isn't signed")
        return body

    async def bare(request: Request) -> Response:
        return answer(json.dumps({"got": json.loads(await read(request))}).encode())

    async def offer(request: Request) -> Response:
        hashes = json.loads(await read(request))
        return answer(json.dumps([one for one in hashes if not (folder / one).exists()]).encode())

    async def files(request: Request) -> Response:
        body, at = memoryview(await read(request)), 0
        while at < len(body):
            end = at + 8 + int.from_bytes(body[at : at + 8], "little")
            content = body[at + 8 : end]
            with open(f"{folder}/{hashlib.sha256(content).hexdigest()}", "xb") as file:
                file.write(content)
            at = end
        return answer(b"{}")

    handlers = {"/bare": bare, "/offer": offer, "/files": files}
    return Starlette(routes=[Route(path, one, methods=["POST"]) for path, one in handlers.items()])


async def _serve(folder: Path) -> None:
    with listen("127.0.0.1", 0) as listening:
        url = url_of(listening, "127.0.0.1", tls=False)
        await serve_app(_app(folder), listening, announce=lambda: print(url, flush=True))


if __name__ == "__main__":
    import anyio

    anyio.run(_serve, Path(sys.argv[1]))
