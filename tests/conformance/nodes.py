"""ryecore's own node as the suite runs it: as a process, and in a host's application."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
from anyio.from_thread import start_blocking_portal
from attrs import frozen
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from ryecore.lillux.keys import PublicKey
from ryecore.node import create_node_app, load_node, make_node
from ryecore.node.callers import Caller, Callers
from ryecore.node.identity import NodeIdentity
from ryecore.serving import listen, serve_app, url_of
from ryecore.testing.node import Address, CallerGrant
from ryecore.testing.ports import free_port
from tests.served_node import served_node

__all__ = ["OwnNode", "mounted_node", "node_process"]

_SETTINGS = "min_free_bytes: 0\n"


@frozen
class OwnNode:
    """A node that runs."""

    address: Address
    identity: NodeIdentity

    @property
    def key(self) -> PublicKey:
        return self.identity.key.public

    def allow(self, grant: CallerGrant) -> None:
        caller = Caller(
            grant.key,
            scopes=grant.scopes,
            not_after=grant.not_after,
            max_runs=grant.max_runs,
            max_bytes=grant.max_bytes,
        )
        Callers(self.identity.folder, self.identity.key).allow(caller)

    def revoke(self, key: PublicKey) -> None:
        Callers(self.identity.folder, self.identity.key).revoke(key.fingerprint)


@contextmanager
def node_process(
    folder: Path, settings: str = "", options: tuple[str, ...] = ()
) -> Iterator[OwnNode]:
    """`rye node serve` as a process, which is killed at its end; `settings` are for node.yaml."""
    settings = f"port: {_port_of(folder)}\n{_SETTINGS}{settings}"
    with served_node(folder / "node", *options, settings=settings) as served:
        yield OwnNode(Address(served.url), served.identity)


@contextmanager
def mounted_node(
    folder: Path, wrap: Callable[[ASGIApp, NodeIdentity], ASGIApp] = lambda app, _: app
) -> Iterator[OwnNode]:
    """`create_node_app` below a path of another application, in this process.

    Args:
        folder: Its folder.
        wrap: Changes the application.
    """
    place = folder / "node"
    identity = load_node(place) if place.exists() else make_node(place)
    (place / "node.yaml").write_text(_SETTINGS)
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(_mounted(identity, _port_of(folder), wrap)) as url,
    ):
        yield OwnNode(Address(f"{url}/tools/node"), identity)


@asynccontextmanager
async def _mounted(
    identity: NodeIdentity, port: int, wrap: Callable[[ASGIApp, NodeIdentity], ASGIApp]
) -> AsyncIterator[str]:
    node = create_node_app(identity.folder)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with node.router.lifespan_context(node):
            yield

    host = Starlette(routes=[Mount("/tools/node", wrap(node, identity))], lifespan=lifespan)
    listening, ready = listen("127.0.0.1", port), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve_app(host, listening, announce=ready.set))
        await ready.wait()
        yield url_of(listening, "127.0.0.1")
        tasks.cancel_scope.cancel()


def _port_of(folder: Path) -> int:
    """A free port, the same one for each start of the node in a folder."""
    kept = folder / "port"
    if not kept.exists():
        kept.write_text(str(free_port()))
    return int(kept.read_text())
