"""The suite that every adapter passes: its real SDK, over real HTTP, in the vendor's own format."""

from ryecore.testing.conformance.bench import Backend, Bench, case, check, equal
from ryecore.testing.conformance.script import (
    Failure,
    Feature,
    MadeMedia,
    RawRequest,
    Reply,
    Script,
    ScriptPart,
    SeenRequest,
    Wire,
)
from ryecore.testing.conformance.server import Answer, WireServer
from ryecore.testing.conformance.suite import CaseResult, ProviderConformance, run_conformance

__all__ = [
    "Answer",
    "Backend",
    "Bench",
    "CaseResult",
    "Failure",
    "Feature",
    "MadeMedia",
    "ProviderConformance",
    "RawRequest",
    "Reply",
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
