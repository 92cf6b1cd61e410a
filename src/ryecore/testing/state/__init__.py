"""The suite that every store passes: registry, ledger, approvals and records, in real processes."""

from typing import ClassVar
from unittest import SkipTest

from ryecore.lillux.processes import ProcessId
from ryecore.policy.budget import Settlement
from ryecore.state.approvals import ApprovalStore
from ryecore.state.idempotency import IdempotencyKey
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import ContinuationLimits, Predecessor, RemotePlace, SpawnLimit
from ryecore.state.record_log import RecordLog, RecordStore, Recovery
from ryecore.state.registry import ThreadRegistry
from ryecore.state.transcript_format import Head, Record
from ryecore.testing.state.approvals import ApprovalCases
from ryecore.testing.state.bench import StateStore, run_state_conformance
from ryecore.testing.state.ledger import LedgerCases
from ryecore.testing.state.processes import ProcessCases
from ryecore.testing.state.records import RecordCases
from ryecore.testing.state.registry import RegistryCases
from ryecore.testing.state.thread_transactions import ThreadTransactionCases

__all__ = [
    "ApprovalStore",
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
    "RemotePlace",
    "Settlement",
    "SpawnLimit",
    "StateConformance",
    "StateStore",
    "ThreadRegistry",
    "run_state_conformance",
]


class StateConformance(
    RegistryCases, LedgerCases, ThreadTransactionCases, ApprovalCases, RecordCases, ProcessCases
):
    """What every store must do, with real processes that race and are killed.

    Subclass it in a test module and open the store:

        class TestMine(StateConformance):
            @asynccontextmanager
            async def open_store(self, place: Path) -> AsyncGenerator[StateStore, None]:
                store = await MyStore.connect(schema=place.name)
                try:
                    yield store
                finally:
                    await store.close()

    pytest and unittest find its methods; `run_state_conformance` needs neither.

    Attributes:
        examples: How many random sequences of operations the ledger is compared with its model in.

    Source: decisions 35, 37 to 40, 47, 77 and 81.
    """

    examples: ClassVar[int] = 60

    def test_the_ledger_agrees_with_its_model(self) -> None:
        """Any sequence of operations leaves the sums that a plain model of the tree adds up."""
        try:
            from ryecore.testing.state.ledger_model import check_ledger_model  # noqa: PLC0415
        except ImportError as missing:
            raise SkipTest("Hypothesis isn't installed: pip install hypothesis") from missing
        check_ledger_model(self, self.examples)
