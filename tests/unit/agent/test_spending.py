"""The spending of a run, on a project's own ledger."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import AgentRunnerDeps, Limits
from ryecore.agent.ledgers import NoLog
from ryecore.agent.spending import OVERSPENT, Spending
from ryecore.llm import LlmRequest, Message, Price, Usage
from ryecore.llm.fallback_rules import GO, AttemptRecord, FallbackPlanEntry
from ryecore.policy import CancelToken
from ryecore.policy.budget import Settled
from ryecore.state.sql_ledger import SqlLedger
from ryecore.testing import ScriptedProvider
from tests.unit.state.test_sql_ledger import Books

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


class Log(NoLog):
    """A log that keeps the types of its records."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def append(self, kind: str, payload: Mapping[str, Any], /) -> None:
        self.kinds.append(kind)


class FarLedger(SqlLedger):
    """A ledger that others work on while it settles, as one on a server."""

    async def settle(self, *args: Any, **more: Any) -> Settled:
        await anyio.lowlevel.checkpoint()
        settled = await super().settle(*args, **more)
        await anyio.lowlevel.checkpoint()
        return settled


async def test_an_overspend_that_two_settle_at_once_is_recorded_once(tmp_path: Path) -> None:
    """As where two calls of one answer each ask an agent."""
    books, log = Books(tmp_path), Log()
    books.root("t", 10**9, 10**6)
    deps = AgentRunnerDeps(
        resolve_provider=lambda _: None, key_for=lambda _: "", price_of=lambda *_: Price("1", "1")
    )
    ledger = FarLedger(books.ledger._database)
    spending = Spending("t", ledger, Limits(spend_usd=10), deps, log, CancelToken())
    spending.begin_turn(1)
    request = LlmRequest("m", (Message.user("Hi"),), max_output_tokens=10)
    entry = FallbackPlanEntry(ScriptedProvider([]), "m")
    assert await spending.before_attempt(entry, request, 1) is GO
    record = AttemptRecord(0, "scripted", "m", 1, "success", None, "", usage=Usage(10, 1_000))
    spending.on_cost(record, spending.tracker.record(record))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spending.settle_unwritten)
        tasks.start_soon(spending.settle_unwritten)
    assert spending.stopped
    assert log.kinds.count(OVERSPENT) == 1
