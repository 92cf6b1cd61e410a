"""What threads have cost, summed by directive, model, day and label."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ryecore import Rye
from ryecore.errors import InputError
from ryecore.llm import Price, Usage
from ryecore.llm.request import LlmRequest
from ryecore.results import CostRow
from ryecore.state.model import Cost
from ryecore.testing import call, say
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio

CHILDREN = "<execute><directive>acme/*</directive></execute>"


def model(request: LlmRequest) -> Any:
    """Call the child once where the directive says so; each answer has the same tokens."""
    usage = Usage(70, 10, cache_read_tokens=30)
    if "Parent." in request.messages[0].text and len(request.messages) == 1:
        child = {"item_id": "directive:acme/child", "thread": "fork"}
        return call("rye_execute", child, usage=usage)
    return say("done", usage=usage)


@pytest.fixture
def host(tmp_path: Path) -> ScriptedHost:
    free = '<model id="m-2" provider="scripted"/>'
    made = ScriptedHost(
        tmp_path,
        model=model,
        price_of=lambda _, name: Price("100", "100", cache_read="10") if name == "m-1" else None,
    )
    made.write("acme/parent", "Parent.", permissions=CHILDREN)
    made.write("acme/child", "Child.", permissions="")
    made.write("acme/free", "Free.", model=free, permissions="")
    return made


async def ran(host: ScriptedHost, rye: Rye) -> None:
    for ref, labels in (
        ("directive:acme/parent", {"tenant": "acme", "user": "u-1"}),
        ("directive:acme/child", {"tenant": "other"}),
        ("directive:acme/free", None),
    ):
        done = await rye.execute(ref, thread="fork", labels=labels)
        assert done.success, done.error


async def test_each_thread_counts_once_and_without_its_children(host: ScriptedHost) -> None:
    async with host.open() as rye:
        await ran(host, rye)
        rows = await rye.costs()
    assert [(one.name, one.threads, one.turns) for one in rows] == [
        ("directive:acme/child", 2, 2),
        ("directive:acme/parent", 1, 2),
        ("directive:acme/free", 1, 1),
    ]
    child, parent, free = rows
    assert child.spend_usd == parent.spend_usd == Decimal("0.0166")
    assert (child.input_tokens, child.cached_tokens, child.output_tokens) == (200, 60, 20)
    assert (free.spend_usd, free.unpriced, child.unpriced) == (0, 1, 0)
    assert rows.spend_usd == Decimal("0.0332")
    shown = rows.render().plain()
    assert "60 cached" in shown
    assert "1 request unpriced" in shown
    assert rows[0].to_dict()["spend"] == 0.0166


async def test_labels_group_and_narrow(host: ScriptedHost) -> None:
    async with host.open() as rye:
        await ran(host, rye)
        by_label = {one.name: one.threads for one in await rye.costs(by="label")}
        by_tenant = {one.name: one.threads for one in await rye.costs(by="label:tenant")}
        only = await rye.costs(by="model", labels={"tenant": "acme"})
        models = {one.name: one.threads for one in await rye.costs(by="model")}
    assert by_label == {"tenant=acme": 2, "user=u-1": 2, "tenant=other": 1}
    assert by_tenant == {"acme": 2, "other": 1, None: 1}
    assert [(one.name, one.threads) for one in only] == [("scripted/m-1", 2)]
    assert models == {"scripted/m-1": 3, "scripted/m-2": 1}


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of New York."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("new_york")
async def test_days_are_in_order_and_since_cuts(host: ScriptedHost) -> None:
    store = host.store()
    now = datetime.now(UTC)
    for days in (0, 2, 40):
        name = f"acme/old/old-{days}"
        await store.registry.register(name, "directive:acme/old")
        await store.registry.set_cost(name, Cost(turns=1, spend_microcents=days + 1))
        began = (now - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        async with store._database.writing() as run:
            run.execute("UPDATE threads SET created_at = ? WHERE thread_id = ?", (began, name))
    store.close()
    async with host.open() as rye:
        days = [one.name for one in await rye.costs(by="day")]
        assert days == sorted(days)
        assert len(days) == 3
        for since, threads in (
            ("30d", 2), ("1d", 1), ("60d", 3), (now - timedelta(days=3), 2),
            ((now - timedelta(days=2)).date().isoformat(), 2),
            ((now - timedelta(hours=1)).replace(tzinfo=None), 1),  # in UTC, as texts are
        ):  # fmt: skip
            assert sum(one.threads for one in await rye.costs(since=since)) == threads, since


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"by": "colour"}, "'colour' isn't one of: directive, model, day, label, label:NAME"),
        ({"by": "label:"}, "isn't one of"),
        ({"by": None}, "None isn't one of"),
        ({"by": 'label:a"b'}, "isn't the name of a label"),
        ({"since": "yesterday"}, "'yesterday' is neither an age nor a date"),
        ({"since": 7}, "neither an age nor a date"),
        ({"labels": {"a b": "c"}}, "isn't the name of a label"),
    ],
)
async def test_what_costs_cannot_be_summed_by_is_refused(
    host: ScriptedHost, options: dict[str, Any], why: str
) -> None:
    async with host.open() as rye:
        with pytest.raises(InputError, match=why) as refused:
            await rye.costs(**options)
        assert refused.value.next_step
        assert await rye.costs() == ()


def test_rows_are_named_tuples_whose_fields_pandas_takes_as_columns() -> None:
    row = CostRow("directive:acme/x", 1, 2, 3, 4, 0, Decimal("0.1"), 0, 0)
    assert row._fields[0] == "name"
    assert dict(row._asdict())["spend_usd"] == Decimal("0.1")
