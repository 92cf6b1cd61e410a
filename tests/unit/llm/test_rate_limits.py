"""Rate limits: who waits for whom, how long, what is asked instead, and what is told of it."""

import threading

import anyio
import anyio.lowlevel
import pytest

from ryecore import CancelToken
from ryecore.errors import ConfigError
from ryecore.llm import (
    Backoff,
    ChainOptions,
    FallbackChain,
    FallbackPlanEntry,
    LlmError,
    LlmRequest,
    Message,
    RateLimit,
    Refuse,
    StreamEnd,
    TextDelta,
    Usage,
)
from ryecore.llm.rate_limits import RateLimits
from tests.unit.llm.providers import HELLO, REQUEST, Asked, Provider, failing

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

PATIENT = Backoff(base_s=0, cap_s=1000)


class SharedClock:
    """A clock that only `advance` moves; sleepers wake in the order of their times."""

    def __init__(self):
        self.at, self._sleepers = 1000.0, []

    def now(self):
        return self.at

    async def sleep(self, seconds):
        sleeper = (self.at + seconds, anyio.Event())
        self._sleepers.append(sleeper)
        try:
            await sleeper[1].wait()
        finally:
            self._sleepers.remove(sleeper)

    async def advance(self, seconds):
        await anyio.wait_all_tasks_blocked()
        until = self.at + seconds
        while due := [one for one in self._sleepers if one[0] <= until]:
            first = min(due, key=lambda one: one[0])
            self.at = max(self.at, first[0])
            first[1].set()
            await anyio.wait_all_tasks_blocked()
        self.at = until
        await anyio.wait_all_tasks_blocked()


class Host:
    """Conversations that share rate limits, and all that they told, with the time."""

    def __init__(self, *plan, **limits):
        self.clock, self.records, self.ended = SharedClock(), [], {}
        self.limits = RateLimits({name.replace("__", "/"): one for name, one in limits.items()})
        self.plan = [
            one
            if isinstance(one, FallbackPlanEntry)
            else FallbackPlanEntry(one, "model", backoff=PATIENT)
            for one in plan
        ]

    async def ask(self, name, request=REQUEST, **options):
        token = options.pop("cancellation", None)
        options = {"key_for": lambda _: "key"} | options
        chain = FallbackChain(
            self.plan,
            ChainOptions(
                sleep=self.clock.sleep,
                now=self.clock.now,
                on_attempt=self.records.append,
                rate_limits=self.limits,
                **options,
            ),
        )
        try:
            await chain.stream(request, cancellation=token)
            self.ended[name] = self.clock.at - 1000
        except LlmError as error:
            self.ended[name] = error


def answers(provider_id="a", count=20, tokens=(3, 2)):
    end = StreamEnd("stop", Usage(*tokens))
    return Provider(provider_id, *[(TextDelta("Hi"), end)] * count)


def of_tokens(count):
    """A request of about that many tokens with its answer."""
    return LlmRequest("asked", (Message.user("x" * 3 * (count - 1)),), max_output_tokens=1)


async def test_what_does_not_fit_into_a_minute_waits_in_the_order_in_which_it_came():
    host = Host(answers(), a=RateLimit(requests_per_minute=2))

    async with anyio.create_task_group() as tasks:
        for name in "abcde":
            tasks.start_soon(host.ask, name)
            await anyio.wait_all_tasks_blocked()
        assert list(host.ended) == ["a", "b"]
        await host.clock.advance(59)
        assert list(host.ended) == ["a", "b"]
        await host.clock.advance(61)

    assert host.ended == {"a": 0, "b": 0, "c": 60, "d": 60, "e": 120}
    assert [record.waited_ms for record in host.records] == [0, 0, 60_000, 60_000, 120_000]
    assert {record.duration_ms for record in host.records} == {0}


async def test_a_large_request_is_not_overtaken_by_small_ones():
    host = Host(answers(tokens=(40, 20)), a=RateLimit(tokens_per_minute=100))

    async with anyio.create_task_group() as tasks:
        for name, tokens in (("first", 60), ("large", 90), ("small", 10)):
            tasks.start_soon(host.ask, name, of_tokens(tokens))
            await anyio.wait_all_tasks_blocked()
        assert list(host.ended) == ["first"]
        await host.clock.advance(60)

    assert list(host.ended) == ["first", "large", "small"]


async def test_the_next_one_goes_as_soon_as_one_ends_where_few_may_run_at_once():
    gate = anyio.Event()
    provider = Provider("a", (gate.wait, *HELLO), HELLO, HELLO)
    host = Host(provider, a=RateLimit(requests_at_once=1))

    async with anyio.create_task_group() as tasks:
        for name in "abc":
            tasks.start_soon(host.ask, name)
            await anyio.wait_all_tasks_blocked()
        assert provider.opened == 1
        gate.set()

    assert list(host.ended) == ["a", "b", "c"]


async def test_the_real_usage_makes_room_before_the_minute_is_over():
    gate = anyio.Event()
    provider = Provider("a", (gate.wait, StreamEnd("stop", Usage(5, 5))), HELLO)
    host = Host(provider, a=RateLimit(tokens_per_minute=100))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.ask, "first", LlmRequest("asked", REQUEST.messages))
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(host.ask, "second", of_tokens(90))
        await anyio.wait_all_tasks_blocked()
        assert provider.opened == 1  # an answer without a bound may take all the tokens
        gate.set()
        await host.clock.advance(0)
        assert list(host.ended) == ["first", "second"]


@pytest.mark.parametrize("by_token", [True, False])
async def test_one_that_is_cancelled_in_the_line_leaves_its_place_and_was_not_made(by_token):
    provider, token, scope = answers(), CancelToken(), anyio.CancelScope()
    host = Host(provider, a=RateLimit(requests_per_minute=1))

    async def give_up():
        with scope:
            await host.ask("second", cancellation=token)

    async with anyio.create_task_group() as tasks:
        await host.ask("first")
        tasks.start_soon(give_up)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(host.ask, "third")
        await anyio.wait_all_tasks_blocked()
        (token if by_token else scope).cancel()
        await host.clock.advance(60)

    assert host.ended["third"] == 60
    assert provider.opened == 2
    assert [(one.outcome, one.number) for one in host.records] == [
        ("success", 1), ("skipped", 0), ("success", 1),
    ]  # fmt: skip


async def test_a_wait_beyond_the_deadline_fails_at_once():
    provider = answers()
    host = Host(provider, a=RateLimit(requests_per_minute=1))
    await host.ask("first")

    with anyio.fail_after(30):
        await host.ask("second")

    error = host.ended["second"]
    assert (error.kind, error.retryable, error.retry_after_s) == ("rate_limit", True, 60)
    assert "no room for 60.0 s, which is beyond the deadline" in str(error)
    assert (provider.opened, host.records[-1].outcome) == (1, "skipped")


async def test_what_can_never_fit_is_refused_and_the_next_entry_asked():
    small, large = answers("small"), answers("large")
    host = Host(small, large, small=RateLimit(tokens_per_minute=100))
    alone = Host(small, small=RateLimit(tokens_per_minute=100))

    await host.ask("one", of_tokens(200))
    await alone.ask("one", of_tokens(200))

    assert (host.ended, small.opened, large.opened) == ({"one": 0}, 0, 1)
    error = alone.ended["one"]
    assert error.kind == "context_length"
    assert "about 199 tokens, and the rate limit of 'small' allows 100" in str(error)
    assert "RateLimit.tokens_per_minute" in error.next_step


async def test_a_bound_of_the_answer_above_the_limit_takes_all_of_it():
    provider = answers()
    host = Host(provider, a=RateLimit(tokens_per_minute=100))

    await host.ask("one", LlmRequest("asked", REQUEST.messages, max_output_tokens=16_000))

    assert host.ended == {"one": 0}


@pytest.mark.parametrize(("cap_s", "asked"), [(8.0, "b"), (100.0, "a")])
async def test_the_next_entry_is_asked_where_the_wait_is_longer_than_the_backoffs(cap_s, asked):
    first = FallbackPlanEntry(answers("a"), "model", backoff=Backoff(cap_s=cap_s))
    host = Host(first, answers("b"), a=RateLimit(requests_per_minute=1))
    await host.ask("first")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.ask, "second")
        await host.clock.advance(60)

    assert host.records[-1].provider == asked
    assert host.ended["second"] == (0 if asked == "b" else 60)
    if asked == "b":
        assert host.records[1].reason == "its provider has no room in its rate limit for 60.0 s"


async def test_where_no_entry_has_room_the_first_to_have_some_is_waited_for():
    plan = [FallbackPlanEntry(answers(name), "model") for name in "ab"]
    each = RateLimit(requests_per_minute=1)
    host = Host(*plan, a=each, b=each)
    await host.ask("first")
    await host.clock.advance(10)
    await host.ask("second")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.ask, "third")
        await host.clock.advance(50)

    assert (host.ended["third"], host.records[-1].provider) == (60, "a")


async def test_the_wait_that_a_provider_asks_for_holds_all_conversations():
    busy = failing("rate_limit", retry_after_s=30.0)
    provider = Provider("a", busy, HELLO, HELLO)
    entry = FallbackPlanEntry(provider, "model", max_attempts=2, backoff=PATIENT)
    host = Host(entry, a=RateLimit(requests_per_minute=50))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.ask, "first")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(host.ask, "second")
        await host.clock.advance(29)
        assert (provider.opened, host.ended) == (1, {})
        await host.clock.advance(1)

    assert host.ended == {"first": 30, "second": 30}


@pytest.mark.parametrize("never_sent", ["refused", "no key"])
async def test_what_is_never_sent_counts_nothing(never_sent):
    def key_for(provider_id):
        raise LookupError

    provider = answers()
    host = Host(provider, a=RateLimit(requests_per_minute=1, requests_at_once=1))
    options = {"key_for": key_for}
    if never_sent == "refused":
        options = {"before_attempt": lambda *_: Refuse("budget_exceeded", "It is spent.")}

    await host.ask("first", **options)
    await host.ask("second")

    assert isinstance(host.ended["first"], LlmError)
    assert host.ended["second"] == 0


async def test_a_failed_request_counts_as_one_and_no_tokens():
    provider = Provider("a", failing("unavailable"), HELLO, HELLO)
    host = Host(provider, a=RateLimit(requests_per_minute=2, tokens_per_minute=100))

    await host.ask("first", of_tokens(100))
    await host.ask("second", of_tokens(100))

    assert host.ended["second"] == 0
    assert host.limits.lane("a", "model").wait_s(host.clock.at, 1) == 60


async def test_the_limit_of_a_model_goes_before_that_of_its_provider():
    host = Host(
        answers("a"), a=RateLimit(requests_per_minute=1), a__model=RateLimit(requests_per_minute=2)
    )

    await host.ask("first")
    await host.ask("second")

    assert host.ended == {"first": 0, "second": 0}


def test_conversations_of_several_event_loops_share_a_limit():
    """Each loop has its own thread; one request runs at a time, and each end wakes the next."""
    limits = RateLimits({"a": RateLimit(requests_at_once=1)})
    running, most, done, lock = [], [], [], threading.Lock()

    async def work():
        with lock:
            running.append(1)
            most.append(len(running))
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        with lock:
            running.pop()

    async def converse():
        provider = Provider("a", *[(work, *HELLO)] * 20)
        chain = FallbackChain(
            [FallbackPlanEntry(provider, "model")],
            ChainOptions(key_for=lambda _: "", rate_limits=limits),
        )
        for _ in range(20):
            await chain.stream(REQUEST)
            done.append(1)

    loops = [
        threading.Thread(target=anyio.run, args=(converse,), kwargs={"backend": backend})
        for backend in ("asyncio", "trio", "asyncio", "trio")
    ]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join(30)

    assert (len(done), max(most)) == (80, 1)


@pytest.mark.parametrize(
    ("declared", "what"),
    [
        ([], "must be a mapping"),
        ({"": RateLimit(1)}, "names '', which is neither a provider nor a model"),
        ({"openai/*": RateLimit(1)}, "names 'openai/\\*'"),
        ({7: RateLimit(1)}, "names 7"),
        ({"openai": 50}, "rate_limits\\['openai'\\] isn't a RateLimit"),
    ],
)
def test_what_is_no_mapping_of_limits_is_refused(declared, what):
    with pytest.raises(ConfigError, match=what):
        ChainOptions(str, rate_limits=declared)


async def test_a_chain_without_a_limit_for_its_provider_never_waits():
    asked = Asked(Provider("a", HELLO, HELLO), rate_limits={"b": RateLimit(1)})

    await asked.stream()
    await asked.stream()

    assert [(one.outcome, one.waited_ms) for one in asked.records] == [("success", 0)] * 2
