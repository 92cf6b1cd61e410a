"""What a thread asks providers to cache, and the prefix that its requests share."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ryecore.errors import ConfigError
from ryecore.llm import Price, Usage
from ryecore.testing import call, say
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("declared", "configured", "cache"),
    [
        ("", "", "5m"),
        ('cache="1h"', "", "1h"),
        ('cache="none"', "", None),
        ("", "loop: {cache: 1h}\n", "1h"),
        ("", "loop: {cache: none}\n", None),
        ('cache="5m"', "loop: {cache: none}\n", "5m"),
    ],
)
async def test_a_directive_or_the_configuration_says_for_how_long_prompts_are_kept(
    tmp_path: Path, declared: str, configured: str, cache: str | None
) -> None:
    host = ScriptedHost(tmp_path, say("ok"), say("ok"))
    if configured:
        host.workspace.write("config/agent/resilience.yaml", configured)
    model = f'<model id="m-1" provider="scripted" {declared}/>'
    await host.run(host.write("acme/x", model=model))
    assert {one.cache for one in host.model.requests} == {cache}


async def test_a_lifetime_that_does_not_exist_is_refused_with_its_line(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("ok"))
    host.workspace.write("config/agent/resilience.yaml", "loop: {cache: 2h}\n")
    with pytest.raises(ConfigError, match=r"resilience\.yaml, line 2: loop\.cache"):
        await host.run(host.write("acme/x"))


async def test_each_request_of_a_thread_begins_with_the_one_before(tmp_path: Path) -> None:
    calls: list[Any] = [call("add", {"a": 1, "b": n}) for n in range(3)]
    host = ScriptedHost(tmp_path, *calls, say("ok"), *calls, say("ok"))
    ref = host.write("acme/x")
    first, second = [await host.run(ref) for _ in range(2)]
    assert first.ended == second.ended == "completed"
    requests = host.model.requests
    assert len(requests) == 8
    for before, after in pairwise(requests[:4]):
        assert after.messages[: len(before.messages)] == before.messages
    # Two threads of one directive share tools and system text.
    assert len({repr((one.system, one.tools)) for one in requests}) == 1


async def test_a_thread_holds_what_writing_for_an_hour_costs(tmp_path: Path) -> None:
    price = Price("100", "0", cache_read="10", cache_write="125", cache_write_1h="200")
    host = ScriptedHost(tmp_path, say("ok"), say("ok"), price_of=lambda *_: price)
    held: list[int] = []
    for cache in ("5m", "1h"):
        model = f'<model id="m-1" provider="scripted" cache="{cache}"/>'
        ref = host.write(f"acme/for-{cache}", model=model, limits='spend="1000"')
        done = await host.run(ref)
        record = host.records(done.thread_id, "model_call")[0]
        held.append(record.payload["held_spend_microcents"])
    assert held[0] > 0
    assert held[1] * 125 == held[0] * 200


async def test_a_thread_tells_what_its_caches_saved_in_its_rows_result_and_transcript(
    tmp_path: Path,
) -> None:
    price = Price("1", "0", cache_read="0.1", cache_write="1.25")
    host = ScriptedHost(
        tmp_path,
        call("add", {"a": 1, "b": 2}, usage=Usage(10, 1, cache_write_tokens=1_000)),
        say("ok", usage=Usage(10, 1, cache_read_tokens=3_000)),
        price_of=lambda *_: price,
    )
    done = await host.run(host.write("acme/x", "Add them. " * 2_000))
    assert done.ended == "completed", done.error
    saved = 3_000 * 90 - 1_000 * 25
    assert (done.cost.cached_tokens, done.cost.cache_saved_microcents) == (3_000, saved)
    assert done.to_dict()["cost"]["cache_saved"] == saved / 10**8
    assert "$0.0024 saved by caches" in str(done) + done._repr_html_()
    row = await host.store().registry.get_thread(done.thread_id)
    assert row is not None
    assert row.cost == done.cost
    ends = host.records(done.thread_id, "model_call_end")
    assert [one.payload.get("cache_saved_microcents") for one in ends] == [-25_000, 270_000]
    assert [one.payload.get("cached_tokens") for one in ends] == [None, 3_000]
    async with host.open() as rye:
        replayed = await rye.threads.replay(done.thread_id)
    assert replayed.ok, replayed


async def test_a_thread_without_a_cache_says_nothing_of_it(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), say("ok"), price_of=None)
    done = await host.run(host.write("acme/x"))
    assert "cache" not in str(done.to_dict()["cost"])
    ends = host.records(done.thread_id, "model_call_end")
    assert len(ends) == 2
    assert not [key for one in ends for key in one.payload if "cache" in key]
