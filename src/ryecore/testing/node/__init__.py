"""The suite that every node passes: hostile callers and honest ones, over real HTTP."""

from ryecore.testing.node.admission import AdmissionCases
from ryecore.testing.node.bench import CallerGrant, NodeUnderTest, run_node_conformance
from ryecore.testing.node.bounds import BoundCases
from ryecore.testing.node.content import ContentCases
from ryecore.testing.node.events import EventCases
from ryecore.testing.node.runs import RunCases
from ryecore.testing.node.wire import Address
from ryecore.testing.ports import free_port

__all__ = [
    "Address",
    "CallerGrant",
    "NodeConformance",
    "NodeUnderTest",
    "free_port",
    "run_node_conformance",
]


class NodeConformance(AdmissionCases, ContentCases, RunCases, EventCases, BoundCases):
    """What every node must do, over real sockets.

    Subclass it in a test module and run the node:

        class TestMine(NodeConformance):
            @contextmanager
            def open_node(self, folder: Path) -> Iterator[NodeUnderTest]:
                with my_node(folder) as node:
                    yield node

    pytest and unittest find its methods; `run_node_conformance` needs neither.

    Source: docs/design/remote.md; decisions 63 to 75.
    """
