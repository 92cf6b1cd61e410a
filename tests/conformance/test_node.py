"""ryecore's own node passes the suite: as `rye node serve`, and in a host's application."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ryecore.testing.node import NodeConformance, NodeUnderTest
from tests.conformance.nodes import mounted_node, node_process


class TestServedNode(NodeConformance):
    @contextmanager
    def open_node(self, folder: Path) -> Iterator[NodeUnderTest]:
        with node_process(folder) as node:
            yield node


class TestMountedNode(NodeConformance):
    @contextmanager
    def open_node(self, folder: Path) -> Iterator[NodeUnderTest]:
        with mounted_node(folder) as node:
            yield node
