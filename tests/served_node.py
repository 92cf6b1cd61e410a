"""A node as a real process, and requests to it that are signed by hand."""

import hashlib
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from attrs import field, frozen

from ryecore import SigningKey
from ryecore.node.callers import Caller, Callers
from ryecore.node.identity import NodeIdentity, load_node, make_node
from ryecore.remote.protocol.models import SnapshotAnswer, StoredAnswer, read_answer
from ryecore.remote.protocol.pieces import Piece, encode_pieces
from ryecore.remote.protocol.signatures import check_response, sign_request
from ryecore.remote.protocol.snapshots import Snapshot
from ryecore.state.records import canonical_json
from tests.forking import SERVERS, Forked

COMMAND = ["ryecore.cli", "node", "serve"]


@frozen
class ServedNode:
    """A node that runs.

    Attributes:
        url: Where.
        identity: Its keys and folder.
        process: The server.
    """

    url: str
    identity: NodeIdentity
    process: "subprocess.Popen[bytes]"

    def allow(self, key: SigningKey, **more: Any) -> Caller:
        """Allow a key, while the node runs."""
        return allow(self.identity, key, **more)


def allow(identity: NodeIdentity, key: SigningKey, **more: Any) -> Caller:
    """Allow a key to run items on a node."""
    caller = Caller(key.public, **more)
    Callers(identity.folder, identity.key).allow(caller)
    return caller


@contextmanager
def served_node(
    folder: Path,
    *args: str,
    environ: Mapping[str, str] | None = None,
    settings: str = "port: 0\n",
) -> Iterator[ServedNode]:
    """A node over HTTP on a free port, as soon as it takes requests.

    Args:
        folder: Its folder; a node is made there unless there is one.
        args: Further arguments of `rye node serve`.
        environ: Its environment.
        settings: What `node.yaml` holds.
    """
    identity = load_node(folder) if (folder / "key.pem").exists() else make_node(folder)
    (folder / "node.yaml").write_text(settings)
    started: subprocess.Popen[bytes] = Forked(
        [*COMMAND, "--folder", str(folder), *args],
        imported=SERVERS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={"USER_SPACE": str(folder.parent), **(environ or dict(os.environ))},
    )
    assert started.stderr is not None
    try:
        line = started.stderr.readline().decode()
        assert "ryecore serves a node at " in line, line + started.stderr.read().decode()
        yield ServedNode(line.rpartition(" ")[2].strip(), identity, started)
    finally:
        started.kill()
        started.wait()
        started.stderr.close()


@frozen
class NodeClient:
    """Requests to a node that a key signs. Each answer's signature is checked.

    Attributes:
        node: The node.
        key: The caller's key.
        web: The HTTP client.
    """

    node: NodeIdentity
    key: SigningKey
    web: httpx2.AsyncClient = field(repr=False)

    def sign(self, method: str, target: str, body: bytes = b"", **more: Any) -> dict[str, str]:
        """Return the headers that sign a request."""
        url = httpx2.URL(str(self.web.base_url).rstrip("/") + target)
        path, _, query = url.raw_path.decode().partition("?")
        known = {"node": self.node.fingerprint, "now_s": int(time.time())}
        return sign_request(
            self.key,
            method=method,
            authority=url.netloc.decode(),
            path=path,
            query=query,
            body=body,
            **{**known, **more},
        )

    async def send(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> httpx2.Response:
        """Send a request, signed unless it has headers that sign it, and prove its answer."""
        signed = self.sign(method, target, body, **more)
        sent = {**signed, **(headers or {})}
        url = str(self.web.base_url).rstrip("/") + target
        answer = await self.web.request(method, url, content=body, headers=sent)
        self.check(answer, sent)
        return answer

    def check(self, answer: httpx2.Response, sent: Mapping[str, str]) -> None:
        """Prove that the node answered this request."""
        headers = {name.lower(): value for name, value in answer.headers.items()}
        is_stream = "content-digest" not in headers
        check_response(
            self.node.key.public,
            status=answer.status_code,
            headers=headers,
            body=None if is_stream else answer.content,
            request={name.lower(): value for name, value in sent.items()},
        )

    async def get(self, target: str, **headers: str) -> httpx2.Response:
        """Get a path."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.send("GET", target, headers=named)

    async def post(self, target: str, document: Mapping[str, object]) -> httpx2.Response:
        """Post a JSON document."""
        return await self.send("POST", target, canonical_json(document))

    async def push(self, snapshot: Snapshot, *contents: bytes) -> SnapshotAnswer:
        """Push a snapshot and contents of its objects, and return what was missing."""
        answer = await self.send("POST", "/snapshots", snapshot.to_bytes())
        assert answer.status_code == 200, answer.text
        if contents:
            await self.store(*contents)
        return read_answer(answer.json(), SnapshotAnswer)

    async def store(self, *contents: bytes | Piece) -> StoredAnswer:
        """Store whole objects, or pieces."""
        body = encode_pieces(one if isinstance(one, Piece) else whole(one) for one in contents)
        answer = await self.send("POST", "/objects", body)
        assert answer.status_code == 200, answer.text
        return read_answer(answer.json(), StoredAnswer)


def whole(content: bytes) -> Piece:
    """Return an object as one piece."""
    return Piece(hashlib.sha256(content).hexdigest(), len(content), 0, content)


@asynccontextmanager
async def client_of(
    served: ServedNode, key: SigningKey, **options: Any
) -> AsyncIterator[NodeClient]:
    """A client of a node that runs."""
    async with httpx2.AsyncClient(base_url=served.url, timeout=30, **options) as web:
        yield NodeClient(served.identity, key, web)
