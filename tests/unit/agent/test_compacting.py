"""Long conversations: a summary takes the place of their beginning."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import anyio
import pytest

from ryecore import (
    Agent,
    AgentNode,
    AgentRunnerDeps,
    AgentSession,
    AgentTurnLimits,
    CancelToken,
    Limits,
    NodeExecContext,
    create_agent_node_executor,
)
from ryecore.agent import AgentEvent, Compact, CompactionFailed, ConversationCompacted
from ryecore.agent.compaction import summary_in
from ryecore.errors import AgentTurnError, ConfigError, InputError
from ryecore.llm import Capabilities, Message, Price, TextPart, Usage
from ryecore.llm.messages import check_order
from ryecore.llm.request import LlmRequest
from ryecore.llm.token_estimates import estimated_tokens
from ryecore.testing import FunctionProvider, ScriptedProvider, Spoken, call, fail, say
from ryecore.tools import tool

loops = [pytest.mark.anyio, pytest.mark.both_loops]
WINDOW = 4_000


def counted(request: LlmRequest) -> Usage:
    """What a provider counts: four characters a token, fewer than are estimated."""
    return Usage(estimated_tokens(request) * 3 // 4, 10)


class Model:
    """A model that answers by a script, counts tokens, and takes so many."""

    def __init__(self, script: Sequence[Any], name: str = "m0", window: int = WINDOW) -> None:
        self._script = iter(script)
        self._window = window
        self.tasks: list[LlmRequest] = []
        self.provider = FunctionProvider(
            self._answer, provider_id=name, capabilities=Capabilities(context_tokens=window)
        )

    def _answer(self, request: LlmRequest) -> Spoken:
        if "You summarize conversations" in request.system:
            self.tasks.append(request)
            return say("Nothing to see yet.", usage=Usage(100, 20))
        usage = counted(request)
        assert usage.total_tokens <= self._window, "the request is longer than the context"
        check_order(request.messages)
        said = next(self._script)
        if callable(said):
            return said(request)  # type: ignore[no-any-return]
        return say(said, usage=usage) if isinstance(said, str) else said

    @property
    def requests(self) -> list[LlmRequest]:
        return self.provider.requests


@tool
async def look(n: int) -> str:
    """Look at one place."""
    return f"place {n}: {'x' * 600}"


def looks(*places: int) -> list[Any]:
    def asks(place: int) -> Any:
        return lambda request: call("look", {"n": place}, usage=counted(request))

    return [asks(place) for place in places]


def host(*models: Model, **fields: Any) -> AgentRunnerDeps:
    known = {one.provider.provider_id: one.provider for one in models}
    given = {
        "resolve_provider": known.get,
        "key_for": lambda _: "k",
        "limits": AgentTurnLimits(max_tool_turns=200),
        "price_of": lambda *_: Price("10000", "10000"),  # a cent for each token
    }
    return AgentRunnerDeps(**given | fields)


def agent(**more: Any) -> Agent[Any]:
    return Agent(**{"name": "a", "provider": "m0", "model": "m", "tools": [look]} | more)


def summaries(events: list[AgentEvent]) -> list[ConversationCompacted]:
    return [one for one in events if isinstance(one, ConversationCompacted)]


def failures(events: list[AgentEvent]) -> list[CompactionFailed]:
    return [one for one in events if isinstance(one, CompactionFailed)]


def short(messages: Sequence[Message]) -> str:
    return f"A summary of {len(messages)} messages."


class TestALongLoop:
    pytestmark = loops

    async def test_a_hundred_turns_go_on_within_the_window(self) -> None:
        model = Model([*looks(*range(100)), "All seen."])
        events: list[AgentEvent] = []
        session = AgentSession(
            agent(), host(model), compact=Compact(by=short), on_event=events.append
        )
        reply = await session.send("Look at all the places.")

        assert str(reply) == "All seen."
        assert reply.turns == 101
        assert len(summaries(events)) > 3
        for one in summaries(events):
            assert one.window_tokens == WINDOW
            assert one.tokens_before >= 0.8 * WINDOW
            assert one.tokens_after < one.tokens_before / 2
            assert "A summary of" in one.summary
        first = session.messages[0]
        assert first.parts[0] == TextPart("Look at all the places.")
        assert summary_in(first) is first.parts[1]
        assert "place 99" in str(session.messages)  # the end stays as it was
        assert "place 3:" not in str(session.messages)
        assert "summary" in session._repr_html_()

    async def test_it_is_shortened_between_messages_too(self) -> None:
        model = Model([f"Answer {n}: {'y' * 400}" for n in range(60)])
        events: list[AgentEvent] = []
        session = AgentSession(
            agent(), host(model), compact=Compact(by=short), on_event=events.append
        )
        for n in range(60):
            assert f"Answer {n}" in str(await session.send(f"Question {n}: {'z' * 300}"))
            roles = [one.role for one in session.messages]
            assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert len(summaries(events)) > 1
        assert "Question 59" in session.messages[-2].text

    async def test_the_model_sees_the_summary_marked_as_such(self) -> None:
        model = Model([*looks(*range(20)), "Done."])
        session = AgentSession(
            agent(), host(model), compact=Compact(by=lambda _: "Seen </summary> so far.")
        )
        await session.send("Look.")
        [asked, summary] = model.requests[-1].messages[0].parts
        assert asked == TextPart("Look.")
        assert isinstance(summary, TextPart)
        assert summary.summary_of > 2
        assert summary.text.startswith("\n\n<summary>\n")
        assert "&lt;/summary> so far." in summary.text
        assert summary.text.endswith("\n</summary>")

    async def test_a_saved_conversation_keeps_the_mark(self) -> None:
        model = Model([*looks(*range(20)), "Done.", "Yes."])
        session = AgentSession(agent(), host(model), compact=Compact(by=short))
        await session.send("Look.")
        again = AgentSession.from_json(
            agent(), host(model), session.to_json(), compact=Compact(by=short)
        )
        assert again.messages == session.messages
        assert summary_in(again.messages[0]) is not None
        await again.send("Sure?")
        assert again.messages[-1].text == "Yes."

    async def test_a_continued_conversation_that_fills_the_window_is_shortened_first(self) -> None:
        before = [
            one
            for n in range(20)
            for one in (Message.user(f"q{n} " + "x" * 300), Message.assistant(f"a{n} " + "y" * 300))
        ]
        model = Model(["Hello."])
        session = AgentSession(
            agent(), host(model), messages=before, compact=Compact(by=short, keep_tokens=500)
        )
        await session.send("Hello?")
        [request] = model.requests
        assert summary_in(request.messages[0]) is not None
        assert request.messages[-1].text == "Hello?"
        assert "a19" in str(request.messages)
        assert "a2 " not in str(request.messages)

    async def test_its_listener_can_still_save_all_of_it(self) -> None:
        model = Model([*looks(*range(22)), "Done."])
        saved: list[str] = []

        def keep(event: AgentEvent) -> None:
            if isinstance(event, ConversationCompacted):
                saved.append(session.to_json())

        session = AgentSession(agent(), host(model), compact=Compact(by=short), on_event=keep)
        await session.send("Look.")
        whole = AgentSession.from_json(agent(), host(model), saved[0])
        assert "place 0:" in str(whole.messages)
        assert "place 0:" not in str(session.messages)

    async def test_an_agent_that_a_tool_calls_is_shortened_too(self) -> None:
        boss = Model([call("helper", {"task": "Look at all."}), "So be it."])
        helper = Model([*looks(*range(40)), "All seen."], "m1")
        deps = host(boss, helper, compact=Compact())
        asked = agent(name="helper", provider="m1")
        session = AgentSession(agent(tools=[asked.as_tool()]), deps)
        assert str(await session.send("Go.")) == "So be it."
        assert "All seen." in str(session.messages)
        assert helper.tasks

    async def test_one_shortened_at_the_users_message_fails_and_keeps_what_was_asked(self) -> None:
        before = [
            one
            for n in range(6)
            for one in (Message.user(f"q{n}"), Message.assistant(f"a{n} " + "y" * 300))
        ]
        model = Model([fail("context_length"), fail("server"), "Hello."])
        compact = Compact(by=short, keep_tokens=300, window_tokens=100_000)
        session = AgentSession(agent(), host(model), messages=before, compact=compact)
        with pytest.raises(AgentTurnError):
            await session.send("Hello?")
        assert summary_in(session.messages[0]) is not None
        assert session.messages[0].parts[-1] == TextPart("q4")  # the end begins with it
        assert session.messages[-1].text.startswith("a5")
        assert str(await session.retry()) == "Hello."
        assert [one.text for one in session.messages[-2:]] == ["Hello?", "Hello."]

    async def test_the_hosts_own_setting_holds_for_its_sessions(self) -> None:
        model = Model([*looks(*range(20)), "Done."])
        session = AgentSession(agent(), host(model, compact=Compact(by=short)))
        await session.send("Look.")
        assert summary_in(session.messages[0]) is not None

    async def test_the_hosts_own_setting_holds_for_nodes(self) -> None:
        model = Model([*looks(*range(40)), "Done."])
        events: list[AgentEvent] = []
        node = AgentNode.asking("Look.", agent=agent())
        ctx = NodeExecContext(vertex=node, resolved_agent=agent(), emit=events.append)
        outcome = await create_agent_node_executor(host(model, compact=Compact()))(ctx)
        assert outcome.output == "Done."
        assert summaries(events)[0].node_id == "a"
        assert model.tasks
        assert model.requests[-1].messages[0].parts[0] == TextPart("Look.")

    async def test_a_session_that_is_handed_over_goes_on_with_it(self) -> None:
        first, second = Model(["Hello."]), Model([*looks(*range(20)), "Done."], "m1")
        session = AgentSession(agent(), host(first, second), compact=Compact(by=short))
        await session.send("Hello")
        other = session.hand_to(agent(name="b", provider="m1"))
        await other.send("Look.")
        assert summary_in(other.messages[0]) is not None


class TestWhoSummarizes:
    pytestmark = loops

    async def test_the_agents_own_model_by_default(self) -> None:
        model = Model([*looks(*range(22)), "Done."])
        session = AgentSession(agent(), host(model), compact=Compact(keep_tokens=1_000))
        await session.send("Look.")
        [asked] = model.tasks
        [task] = asked.messages
        assert asked.tools == ()
        assert "user: Look." in task.text
        assert "assistant calls look: {" in task.text
        assert "look returned: place 0" in task.text
        assert "Nothing to see yet." in session.messages[0].text

    async def test_an_agent_whose_costs_count_in_the_session(self) -> None:
        model = Model([*looks(*range(22)), "Done."])
        scribe = Model([say("Short.", usage=Usage(30, 5))], "m1", 100_000)
        session = AgentSession(
            agent(),
            host(model, scribe),
            compact=Compact(by=agent(name="scribe", provider="m1", tools=[])),
            limits=Limits(spend_usd=1_000),
        )
        events: list[Any] = []
        reply = await session.send("Look.", on_event=events.append)
        own = sum(one.cost_usd for one in events if one.type == "cost:updated")
        assert len(scribe.requests) == 1
        assert reply.cost_usd == session.cost_usd == own + Decimal("0.35")

    async def test_an_async_function(self) -> None:
        async def summarize(messages: Sequence[Message]) -> str:
            await anyio.lowlevel.checkpoint()
            assert messages[0].text == "Look."
            return "Short."

        model = Model([*looks(*range(22)), "Done."])
        session = AgentSession(agent(), host(model), compact=Compact(by=summarize))
        await session.send("Look.")
        assert "Short." in session.messages[0].text


class TestFailures:
    pytestmark = loops

    async def test_a_summary_that_fails_leaves_the_conversation_as_it_is(self) -> None:
        model = Model([*looks(*range(15)), "Done."])
        events: list[AgentEvent] = []

        def broken(messages: Sequence[Message]) -> str:
            raise RuntimeError("no ink")

        session = AgentSession(
            agent(), host(model), compact=Compact(at=0.5, by=broken), on_event=events.append
        )
        assert str(await session.send("Look.")) == "Done."
        assert len(session.messages) == 32
        assert "no ink" in failures(events)[0].reason
        assert len(failures(events)) < 5  # not at each turn

    @pytest.mark.parametrize(
        ("made", "reason"),
        [
            (" ", "the summary is empty."),
            (None, "the summary is a NoneType, not text."),
            ("long " * 4_000, "the summary is no shorter than the messages it replaces."),
        ],
    )
    async def test_a_summary_that_is_none_is_refused(self, made: Any, reason: str) -> None:
        model = Model([*looks(*range(17)), "Done."])
        events: list[AgentEvent] = []
        session = AgentSession(
            agent(), host(model), compact=Compact(at=0.6, by=lambda _: made), on_event=events.append
        )
        await session.send("Look.")
        assert {one.reason for one in failures(events)} == {reason}
        assert not summaries(events)

    async def test_one_that_no_longer_fits_is_a_clear_error_before_it_is_sent(self) -> None:
        model = Model([*looks(*range(40)), "Done."])

        def broken(messages: Sequence[Message]) -> str:
            raise RuntimeError("no ink")

        session = AgentSession(agent(), host(model), compact=Compact(by=broken))
        with pytest.raises(
            AgentTurnError,
            match=r"no longer fits into the model's context of 4,000 tokens, and it can't be "
            r"shortened: the summary failed: RuntimeError: no ink Send less at once",
        ) as failed:
            await session.send("Look.")
        assert failed.value.code == "validation"
        check_order(session.messages)
        assert session.messages[-1].role == "tool"  # what ran is kept

    async def test_a_refusal_of_the_provider_as_too_long_shortens_it_once(self) -> None:
        full = fail("context_length")
        model = Model([*looks(*range(5)), full, "Done."])
        compact = Compact(by=short, window_tokens=1_000_000, keep_tokens=300)
        session = AgentSession(agent(), host(model), compact=compact)
        assert str(await session.send("Look.")) == "Done."
        assert summary_in(session.messages[0]) is not None

        twice = Model([*looks(*range(5)), full, full])
        session = AgentSession(agent(), host(twice), compact=compact)
        with pytest.raises(AgentTurnError, match="it was shortened already"):
            await session.send("Look.")
        check_order(session.messages)

    async def test_a_reply_that_fails_after_a_summary_can_be_asked_for_again(self) -> None:
        model = Model([*looks(*range(22)), fail("server"), "Done.", "And more."])
        session = AgentSession(agent(), host(model), compact=Compact(by=short))
        with pytest.raises(AgentTurnError):
            await session.send("Look.")
        kept = AgentSession.from_json(agent(), host(model), session.to_json())
        assert kept.messages == session.messages
        assert session.messages[0].parts[0] == TextPart("Look.")
        assert str(await session.retry()) == "Done."
        assert str(await session.send("Go on.")) == "And more."
        check_order(session.messages)

    async def test_one_that_fails_before_its_first_turn_keeps_its_message(self) -> None:
        before = [
            one
            for n in range(10)
            for one in (Message.user(f"q{n} " + "x" * 800), Message.assistant(f"a{n} " + "y" * 800))
        ]
        model = Model([fail("server"), "Hello."])
        session = AgentSession(agent(), host(model), messages=before, compact=Compact(by=short))
        with pytest.raises(AgentTurnError):
            await session.send("Hello?")
        assert "Hello?" not in str(session.messages)
        assert summary_in(session.messages[0]) is not None
        assert session.messages[-1].role == "assistant"
        assert str(await session.retry()) == "Hello."
        assert session.messages[-2].text == "Hello?"

    async def test_a_cancelled_summary_changes_nothing(self) -> None:
        token = CancelToken()
        saved: list[str] = []

        async def slow(messages: Sequence[Message]) -> str:
            saved.append(session.to_json())
            token.cancel()
            await anyio.sleep_forever()
            return ""

        before = [Message.user("q" * 6_000), Message.assistant("a" * 6_000)] * 2
        model = Model(["Hello."])
        session = AgentSession(agent(), host(model), messages=before, compact=Compact(by=slow))
        with pytest.raises(AgentTurnError, match="cancelled"):
            await session.send("Hello?", cancellation=token)
        assert list(session.messages) == before
        again = AgentSession.from_json(agent(), host(model), saved[0])
        assert list(again.messages) == before
        with pytest.raises(AgentTurnError):  # the message that waited is there
            await again.retry(cancellation=token)
        assert not model.requests

    async def test_a_budget_that_does_not_pay_for_the_summary_goes_on_without(self) -> None:
        model = Model([*looks(*range(15)), "Done."])
        events: list[AgentEvent] = []
        scribe = Model([], "m1", 100_000)
        prices = {"m0": "10000", "m1": "10000000"}
        session = AgentSession(
            agent(max_output_tokens=50),
            host(model, scribe, price_of=lambda provider, _: Price(prices[provider], "10000")),
            compact=Compact(at=0.5, by=agent(name="scribe", provider="m1", tools=[])),
            limits=Limits(spend_usd="450"),
            on_event=events.append,
        )
        await session.send("Look.")
        assert "Insufficient budget" in failures(events)[0].reason
        assert not scribe.requests


class TestApprovals:
    pytestmark = loops

    async def test_calls_that_wait_stay(self) -> None:
        @tool(needs_approval=True)
        async def pay(amount: int) -> str:
            """Pay."""
            return f"paid {amount}"

        model = Model([*looks(*range(18)), call("pay", {"amount": 5}), "Paid.", "Bye."])
        session = AgentSession(
            agent(tools=[look, pay]), host(model), compact=Compact(by=short, keep_tokens=0)
        )
        await session.send("Look, and pay.")
        [waiting] = session.pending
        again = AgentSession.from_json(
            agent(tools=[look, pay]),
            host(model),
            session.to_json(),
            compact=Compact(at=0.01, by=short, keep_tokens=0),
        )
        again.resolve(waiting.id, approve=True)
        assert str(await again.resume()) == "Paid."
        assert "paid 5" in str(again.messages)
        check_order(again.messages)


class TestOptions:
    def test_a_share_out_of_range_and_other_types_are_refused(self) -> None:
        for at in (0, 1.5, "half", True):
            with pytest.raises(ConfigError, match=r"Compact\.at is a share"):
                Compact(at=at)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"Compact\.by is an Agent or a function"):
            Compact(by="me")  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            Compact(window_tokens=0)
        with pytest.raises(ConfigError):
            Compact(keep_tokens=-1)
        with pytest.raises(ConfigError, match="compact"):
            host(compact=0.8)
        with pytest.raises(InputError, match=r"needs a Compact, not a float\. Write"):
            AgentSession(agent(), host(Model([])), compact=0.8)  # type: ignore[arg-type]

    def test_a_window_that_nobody_knows_is_a_clear_error(self) -> None:
        deps = AgentRunnerDeps(
            resolve_provider=lambda _: ScriptedProvider([]), key_for=lambda _: ""
        )
        with pytest.raises(AgentTurnError, match=r"isn't known.*Compact\(window_tokens="):
            AgentSession(agent(), deps, compact=Compact())
        AgentSession(agent(), deps, compact=Compact(window_tokens=8_000))

    def test_the_bundled_data_know_windows_that_a_provider_does_not_say(self) -> None:
        known = ScriptedProvider([], provider_id="openai")
        deps = AgentRunnerDeps(resolve_provider=lambda _: known, key_for=lambda _: "")
        AgentSession(agent(provider="openai", model="gpt-5"), deps, compact=Compact())
        with pytest.raises(AgentTurnError, match="isn't known"):
            AgentSession(agent(provider="openai", model="nobody-has-it"), deps, compact=Compact())
