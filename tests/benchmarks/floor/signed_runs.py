"""The floor of a tool on a node: what its two signed, stored exchanges take when written by hand.

A request is signed and proved once at each end as a node's is. Its nonce and its run are rows that
are synced before the tool runs in an open Rye. Its report is signed and is a row, and the answer is
signed over the request's signature. There are no callers, quotas, spaces, limits, cancellation,
events, errors or repeated requests.

`python -m tests.benchmarks.floor.signed_runs WORKSPACE DATABASE` serves.
"""

import hashlib
import json
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ryecore.remote.protocol.signatures import (
    check_digest,
    check_response,
    combine_headers,
    read_request,
    sign_request,
    sign_response,
)
from ryecore.serving import listen, serve_app, url_of
from ryecore.state.records import canonical_json, holds, sign_record
from tests.benchmarks.floor.signed_posts import KEY
from tests.workspace import Workspace

__all__ = ["SignedRuns", "signed_runs"]

_KIND: Final = "node-report"
_NODE: Final = KEY.public.fingerprint


class SignedRuns:
    """A client of the server by hand."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/execute"
        self._http = httpx2.AsyncClient(timeout=60, trust_env=False)
        self._authority = httpx2.URL(url).netloc.decode()

    async def execute(self, ref: str) -> object:
        """Run a tool, and return its result once its report and the answer are proved."""
        asked = {"thread_id": str(uuid.uuid4()), "item_id": ref, "parameters": {}, "wait_s": 30}
        body = json.dumps(asked).encode()
        headers = sign_request(
            KEY, method="POST", authority=self._authority, path="/execute", query="", body=body,
            node=_NODE, now_s=int(time.time()),
        )  # fmt: skip
        answer = await self._http.post(self._url, content=body, headers=headers)
        check_response(
            KEY.public,
            status=answer.status_code,
            headers=combine_headers(answer.headers.raw),
            body=answer.content,
            request={name.lower(): value for name, value in headers.items()},
        )
        report: dict[str, Any] = json.loads(answer.content)["report"]
        if not holds(_KIND, report, KEY.public) or report["thread_id"] != asked["thread_id"]:
            raise ValueError("the report isn't that of the run")
        return report["result"]["data"]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()


@contextmanager
def signed_runs(workspace: Workspace, folder: Path) -> Iterator[str]:
    """Run the server in a process of its own, on the files of a workspace; the URL."""
    folder.mkdir()
    command = [sys.executable, "-m", __name__, str(workspace.root), str(folder / "floor.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def _open(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE nonces (nonce TEXT PRIMARY KEY, expires_s INTEGER)")
    database.execute("CREATE TABLE runs (id TEXT PRIMARY KEY, request TEXT, report TEXT)")
    return database


def _app(workspace: Workspace, path: str) -> Starlette:
    rye, database = workspace.open(), _open(path)

    async def execute(request: Request) -> Response:
        headers = combine_headers(request.scope["headers"])
        signature = read_request(
            method="POST", authority=headers["host"], path="/execute", query="", headers=headers
        )
        signature.check(KEY.public)
        body = await request.body()
        check_digest(headers, body)
        asked = json.loads(body)
        digest = hashlib.sha256(canonical_json(asked)).hexdigest()
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO nonces VALUES (?, ?)", (signature.nonce, 0))
        database.execute(
            "INSERT INTO runs (id, request) VALUES (?, ?)", (asked["thread_id"], body.decode())
        )
        database.execute("COMMIT")  # which syncs: the tool has no effect before
        done = await rye.execute(asked["item_id"], asked["parameters"])
        record = {
            "thread_id": asked["thread_id"],
            "request_sha256": digest,
            "result": done.to_dict(),
        }
        report = sign_record(_KIND, record, KEY)
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(
            "UPDATE runs SET report = ? WHERE id = ?", (json.dumps(report), asked["thread_id"])
        )
        content = json.dumps({"report": report}).encode()
        signed = sign_response(
            KEY, status=200, body=content, request=headers, now_s=int(time.time())
        )
        return Response(content, headers=signed, media_type="application/json")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with rye:
            yield

    return Starlette(routes=[Route("/execute", execute, methods=["POST"])], lifespan=lifespan)


async def _serve(workspace: Workspace, path: str) -> None:
    app = _app(workspace, path)
    with listen("127.0.0.1", 0) as listening:
        url = url_of(listening, "127.0.0.1", tls=False)
        await serve_app(app, listening, announce=lambda: print(url, flush=True))


if __name__ == "__main__":
    import anyio

    anyio.run(_serve, Workspace(Path(sys.argv[1]), is_new=False), sys.argv[2])
