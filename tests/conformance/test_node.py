"""ryecore's own node passes the suite: as `rye node serve`, and in a host's application."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import evolve

from ryecore.testing.node import NodeConformance, NodeUnderTest, run_node_conformance
from tests.certificates import make_certificates
from tests.conformance.nodes import mounted_node, node_process
from tests.matrix import IS_SOAK


def leaves_out(suite: type[NodeConformance], first: int) -> None:
    """Leave out every second case, unless this is the soak: two nodes take turns."""
    cases = sorted(name for name in dir(NodeConformance) if name.startswith("test_"))
    for name in cases[first::2]:
        if not IS_SOAK:
            setattr(suite, name, None)


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


leaves_out(TestServedNode, 0)
leaves_out(TestMountedNode, 1)


def test_a_node_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    tls = f"tls: {{certificate: {made.certificate}, key: {made.key}}}\n"
    trusted = ssl.create_default_context(cafile=tmp_path / "ca.pem")

    class OverTls(NodeConformance):
        @contextmanager
        def open_node(self, folder: Path) -> Iterator[NodeUnderTest]:
            with node_process(folder, tls) as node:
                yield evolve(node, address=evolve(node.address, tls=trusted))

    names = ["test_the_identity_is_signed", "test_a_tool_runs_and_its_report_is_signed"]
    for found in run_node_conformance(OverTls, *names):
        assert found.outcome == "passed", found.error
