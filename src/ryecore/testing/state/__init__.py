"""The suite that every store passes: registry, ledger and record log, with real processes."""

from ryecore.lillux.processes import ProcessId
from ryecore.state.idempotency import IdempotencyKey
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import ContinuationLimits, Predecessor, SpawnLimit
from ryecore.state.record_log import RecordLog, RecordStore, Recovery
from ryecore.state.registry import ThreadRegistry
from ryecore.state.transcript_format import Head, Record
from ryecore.testing.state.bench import StateStore, run_state_conformance
from ryecore.testing.state.suite import StateConformance

__all__ = [
    "BudgetLedger",
    "ContinuationLimits",
    "Head",
    "IdempotencyKey",
    "Predecessor",
    "ProcessId",
    "Record",
    "RecordLog",
    "RecordStore",
    "Recovery",
    "SpawnLimit",
    "StateConformance",
    "StateStore",
    "ThreadRegistry",
    "run_state_conformance",
]
