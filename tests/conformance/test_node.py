"""ryecore's own node passes the suite: as `rye node serve`, and in a host's application."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from ryecore.lillux.keys import PublicKey
from ryecore.node.callers import Caller, Callers
from ryecore.node.identity import NodeIdentity
from ryecore.testing.node import Address, CallerGrant, NodeConformance, NodeUnderTest
from tests.served_node import served_node


@frozen
class _OwnNode:
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


def _port_of(folder: Path) -> int:
    """A free port, the same one for each start of the node in a folder."""
    kept = folder / "port"
    if not kept.exists():
        with socket.create_server(("127.0.0.1", 0)) as free:
            kept.write_text(str(free.getsockname()[1]))
    return int(kept.read_text())


class TestServedNode(NodeConformance):
    """`rye node serve` as a process, which is killed at its end."""

    @contextmanager
    def open_node(self, folder: Path) -> Iterator[NodeUnderTest]:
        port = _port_of(folder)
        with served_node(folder / "node", settings=f"port: {port}\nmin_free_bytes: 0\n") as served:
            yield _OwnNode(Address(served.url), served.identity)
