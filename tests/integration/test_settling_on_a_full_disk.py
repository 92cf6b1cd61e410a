"""A settlement that a full disk keeps from being written is charged once."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ryecore import AgentRunnerDeps, Limits
from ryecore.agent.spending import Spending
from ryecore.errors import StateError
from ryecore.llm.cost import Price
from ryecore.llm.fallback_rules import GO
from ryecore.policy import CancelToken
from ryecore.policy.budget import Amount
from ryecore.state.transcript_format import Head
from tests.small_disk import fill_disk
from tests.unit.state.test_sql_ledger import Books


class Page:
    """A record of tries that takes anything."""

    head: Head | None = None

    def append(self, kind: str, payload: Mapping[str, Any], /) -> None:
        pass

    async def commit(self) -> None:
        pass

    async def write_ahead(self, *, closes: bool = False) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.anyio
@pytest.mark.parametrize("small_disk", ["1m"], indirect=True)
async def test_what_can_not_be_settled_is_charged_once_there_is_room(
    small_disk: Path,
) -> None:
    books = Books(small_disk)
    books.root("t", 10**9, 10**6)
    deps = AgentRunnerDeps(
        resolve_provider=lambda _: None,
        key_for=lambda _: "",
        price_of=lambda *_: Price("1", "5", per_medium="0.04"),
    )
    spending = Spending("t", books.ledger, Limits(spend_usd=10), deps, Page(), CancelToken())
    spending.begin_turn(1)
    assert await spending.before_media("p", "m", 100) is GO
    for registry in small_disk.rglob("*.db"):
        with closing(sqlite3.connect(registry)) as database:  # no room is left in its log either
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    filler = fill_disk(small_disk)
    spending.assume_open()
    for _ in range(2):
        with pytest.raises(StateError):
            await spending.settle_unwritten()
    filler.unlink()
    for _ in range(2):  # as the end of every thread and run does
        await spending.settle_unwritten()

    cost = spending.cost
    total = Amount(cost.spend_microcents, cost.input_tokens + cost.output_tokens)
    await books.ledger.report_actual("t", total)
    await books.registry.settle("t", "error", {})
    account = await books.ledger.account("t")
    assert (account.own, account.held) == (total, Amount())
    (charge,) = await books.ledger.charges("t")
    assert charge.actual == total
