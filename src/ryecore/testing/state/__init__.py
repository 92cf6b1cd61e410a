"""The suite that every store passes: registry, ledger and record log, with real processes."""

from ryecore.state.ledger import BudgetLedger
from ryecore.state.record_log import RecordLog, RecordStore
from ryecore.state.registry import ThreadRegistry
from ryecore.testing.state.bench import StateStore, run_state_conformance
from ryecore.testing.state.suite import StateConformance

__all__ = [
    "BudgetLedger",
    "RecordLog",
    "RecordStore",
    "StateConformance",
    "StateStore",
    "ThreadRegistry",
    "run_state_conformance",
]
