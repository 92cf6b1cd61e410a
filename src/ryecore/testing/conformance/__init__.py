"""The suite that every adapter passes: its real SDK, over real HTTP, in the vendor's own format."""

from ryecore.testing.conformance.answers import AnswerCases
from ryecore.testing.conformance.bench import (
    Backend,
    Bench,
    CaseResult,
    case,
    check,
    equal,
    run_cases,
)
from ryecore.testing.conformance.connections import ConnectionCases
from ryecore.testing.conformance.failures import FailureCases
from ryecore.testing.conformance.keys import KeyCases
from ryecore.testing.conformance.questions import QuestionCases
from ryecore.testing.conformance.script import (
    Failure,
    Feature,
    HttpResponse,
    MadeMedia,
    RawRequest,
    Script,
    ScriptPart,
    SeenRequest,
    Wire,
)
from ryecore.testing.conformance.server import Answer, WireServer

__all__ = [
    "Answer",
    "Backend",
    "Bench",
    "CaseResult",
    "Failure",
    "Feature",
    "HttpResponse",
    "MadeMedia",
    "ProviderConformance",
    "RawRequest",
    "Script",
    "ScriptPart",
    "SeenRequest",
    "Wire",
    "WireServer",
    "case",
    "check",
    "equal",
    "run_conformance",
]


class ProviderConformance(AnswerCases, QuestionCases, FailureCases, ConnectionCases, KeyCases):
    """What every adapter must do, driven over real HTTP against a server that speaks its format.

    Subclass it in a test module, name the wire, make the provider:

        class TestMine(ProviderConformance):
            wire = MyWire()

            def make_provider(self, base_url: str) -> LlmProvider:
                return MyProvider(base_url=base_url)

    pytest and unittest find its methods; `run_conformance` needs neither.

    Source: docs/design/agent-node.md#what-the-host-injects; decisions 50, 56, 58 and 61.
    """


def run_conformance(suite: type[ProviderConformance], *names: str) -> tuple[CaseResult, ...]:
    """Run the suite without a test runner, one case after another.

    Args:
        suite: The subclass for an adapter.
        names: The cases to run; all where none is named.

    Returns:
        The result of each case.
    """
    return run_cases(suite, names)
