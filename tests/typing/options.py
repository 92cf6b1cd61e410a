"""Options that a type checker knows: a misspelt one is an error. Checked, never run."""

from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path
from typing import assert_type

from ryecore import ExecutionResult, Limits, OpenOptions, Rye, SyncRye, rye_execute
from ryecore.agent import Observer, OtelObserver
from ryecore.results import AuditRecord, Execution, GraphResult, SyncThread, ThreadRecords


def a_dictionary_of_options(options: OpenOptions) -> None:
    options["recover"] = True
    Rye.open(".", **options)
    SyncRye.open(".", **options)
    bad: OpenOptions = {"trustedkeys": ()}  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportAssignmentType]
    del bad


def blocking_calls(rye: SyncRye) -> None:
    done = rye.execute("directive:acme/x", {"a": 1}, thread="fork", limits={"turns": 8})
    assert_type(done, ExecutionResult)
    assert_type(rye.start("directive:acme/x", limits=Limits(turns=8)), SyncThread)
    assert_type(rye.threads.list(all=True, limit=5), ThreadRecords)
    assert_type(rye.graphs.step("tool:acme/flow", "load", state={"n": 1}), GraphResult)


async def audited(records: list[AuditRecord], observer: Observer) -> None:
    async def take(record: AuditRecord) -> None:
        assert_type(record.cost_usd, Decimal | None)

    Rye.open(".", audit=take, observer=observer)
    SyncRye.open(".", audit=records.append, observer=OtelObserver())
    Rye.open(".", audit=Path("audit.jsonl"))
    Rye.open(".", audit=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class TokenCounter(Observer):
    """An observer that a host writes: what it doesn't override observes nothing."""

    def execute(self, execution: Execution) -> AbstractContextManager[object]:
        assert_type(execution.spend_microcents, int | None)
        return super().execute(execution)


def misspelt_options(rye: SyncRye) -> None:
    SyncRye.open(".", trustedkeys=())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Rye.open(".", trustedkeys=())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    rye.execute("x", timeout=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    rye.start("x", limit={})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    rye.search("x", kind="tool")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    rye.threads.list(al=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    rye.graphs.start("x", idempotency="k")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    rye.graphs.start_step("x", "load", stat={})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    rye.graphs.start_resume("x", agan=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    rye.graphs.run("x", limit={})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def wrong_types(rye: SyncRye) -> None:
    rye.execute("x", timeout_s="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rye.sign("x", space="system")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def documented_calls() -> None:
    await rye_execute("x", ".", trace=True, timeout_s=3, async_=True)
    await rye_execute("x", ".", timeout=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
