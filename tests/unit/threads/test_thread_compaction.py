"""A thread whose conversation outgrows the model's context goes on with a summary."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore import Agent, AgentRunnerDeps, Rye
from ryecore.agent import Compact
from ryecore.agent.compaction import Compaction, cut_for_summary, summary_in, with_summary
from ryecore.errors import ConfigError
from ryecore.llm import Capabilities, Message, Price, TextPart, Usage
from ryecore.llm.messages import check_order
from ryecore.llm.request import LlmRequest
from ryecore.llm.token_estimates import estimated_tokens
from ryecore.testing import FunctionProvider, ScriptedProvider, Spoken, call, fail, say
from ryecore.threads.records.messages import compaction_payload, keep_tail, rebuild
from ryecore.tools import ToolRegistry, tool
from tests.conversations import CONVERSATIONS
from tests.forking import ROOT, Forked
from tests.scripted_host import ScriptedHost
from tests.unit.threads.test_messages import record, records_of, tokens

loops = [pytest.mark.anyio, pytest.mark.both_loops]
WINDOW = Capabilities(context_tokens=4_000)


@tool(inline=True)
def look(n: int) -> str:
    """Look at one place."""
    if n == int(os.environ.get("DIE_AT", "-1")):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"place {n}: {'x' * 600}"


class Looking:
    """A model that looks at one place after the other, and counts what it reads."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.next = 0
        self.summaries = 0

    def __call__(self, request: LlmRequest) -> Spoken:
        usage = Usage(estimated_tokens(request) * 3 // 4, 10)
        if "You summarize conversations" in request.system:
            self.summaries += 1
            return say(f"Summary {self.summaries}.", usage=usage)
        assert usage.total_tokens <= 4_000, "the request is longer than the context"
        check_order(request.messages)
        if self.next == self.places:
            return say("All seen.", usage=usage)
        self.next += 1
        return call("look", {"n": self.next - 1}, usage=usage)


def model_of(places: int) -> FunctionProvider:
    return FunctionProvider(Looking(places), provider_id="scripted", capabilities=WINDOW)


OWN: Any = {"compact": Compact(keep_tokens=1_000), "price_of": lambda *_: Price("10", "10")}


def looking(root: Path, places: int = 40, **deps: Any) -> ScriptedHost:
    return ScriptedHost(root, model=model_of(places), tools=[look], **OWN | deps)


async def run_again(root: Path, ref: str) -> None:
    """Run a directive of a workspace that another process has made."""
    model = model_of(30)
    deps = AgentRunnerDeps(
        resolve_provider=lambda _: model,
        key_for=lambda _: "",
        registry=ToolRegistry([look]),
        **OWN,
    )
    async with Rye.open(root / "project", user_space=root / "user", agent=deps) as rye:
        await rye.execute(ref, thread="fork")


def one_line(messages: Sequence[Message]) -> str:
    return f"{len(messages)} messages."


class TestALongThread:
    pytestmark = loops

    async def test_it_ends_where_it_began_and_its_transcript_proves_that(
        self, tmp_path: Path
    ) -> None:
        host = looking(tmp_path)
        ref = host.write("acme/look", "Look at all of it.", limits='turns="50" spend="5"')
        async with host.open() as rye:
            done = await rye.execute(ref, thread="fork")
            assert (done.ended, done.text) == ("completed", "All seen."), done.error
            [row] = await rye.threads.list(all=True)  # nothing was handed off
            report = await rye.threads.verify(row.thread_id)
            assert report.ok, str(report)
            replayed = await rye.threads.replay(row.thread_id)
            assert replayed.ok, str(replayed)
            assert replayed.unchecked == ()
            heard = [one async for one in (await rye.threads.thread(row.thread_id)).events()]
        assert len([one for one in heard if one.type == "conversation_compacted"]) >= 2
        records = host.records(row.thread_id)
        compacted = [one for one in records if one.type == "conversation_compacted"]
        assert all(one.payload["tokens_after"] < one.payload["tokens"] for one in compacted)
        summaries = [
            one
            for one in records
            if one.type == "model_call" and one.payload["provider"] == "agent"
        ]
        assert len(summaries) == len(compacted)

        # What was rebuilt is what the model saw last.
        rebuilt = rebuild(records)
        assert tuple(rebuilt.messages[:-1]) == host.model.requests[-1].messages
        first = rebuilt.messages[0].text
        assert "Look at all of it." in first
        assert f"Summary {len(compacted)}." in first
        assert first.count("<summary>") == 1
        assert "Summary 1." in export_of(host, row.thread_id)

    async def test_what_a_summary_costs_counts_in_the_threads_budget(self, tmp_path: Path) -> None:
        scribe = ScriptedProvider([say("Short.", usage=Usage(2_000, 50))] * 5, provider_id="scribe")
        by = Agent(name="scribe", provider="scribe", model="s")
        host = looking(tmp_path, 25, compact=Compact(by=by))
        host.providers["scribe"] = scribe
        ref = host.write("acme/look", "Look.", limits='turns="50" spend="5"')
        done = await host.run(ref)
        assert done.ended == "completed", done.error
        [asked] = host.records(done.thread_id, "conversation_compacted")
        ends = host.records(done.thread_id, "model_call_end")
        spent = sum(one.payload["spend_microcents"] for one in ends)
        account = await host.store().ledger.account(done.thread_id)
        assert account.own.spend_microcents == spent
        assert any(one.payload["input_tokens"] == 2_000 for one in ends)
        assert asked.payload["tokens"] >= 3_200

    async def test_a_fork_before_a_summary_has_all_and_one_behind_it_the_summary(
        self, tmp_path: Path
    ) -> None:
        host = looking(tmp_path, 30, compact=Compact(by=one_line))
        ref = host.write("acme/look", "Look.", limits='turns="50"')
        done = await host.run(ref)
        compacted, *_ = host.records(done.thread_id, "conversation_compacted")
        turn = compacted.payload["turn"]
        host.model._function.next = host.model._function.places
        async with host.open() as rye:
            for after, has_summary in ((turn, False), (turn + 1, True)):
                fork = await rye.threads.fork(done.thread_id, at=after)
                assert fork.ended == "completed", fork.error
                said = str(host.records(fork.thread_id, "thread_forked")[0].payload["messages"])
                assert ("<summary>" in said) is has_summary
                assert ("place 0:" in said) is not has_summary

    async def test_one_that_was_killed_behind_a_summary_resumes_with_it(
        self, tmp_path: Path
    ) -> None:
        host = looking(tmp_path, 30)
        ref = host.write("acme/look", "Look at all of it.", limits='turns="50" spend="5"')
        script = (
            "import sys, anyio\n"
            "from pathlib import Path\n"
            "from tests.unit.threads.test_thread_compaction import run_again\n"
            "anyio.run(run_again, Path(sys.argv[1]), sys.argv[2])\n"
        )
        program = tmp_path / "program.py"
        program.write_text(script)
        environ = {**os.environ, **host.workspace.environ, "DIE_AT": "25"}
        dead = Forked([str(program), str(tmp_path), ref], env=environ, cwd=ROOT)
        assert dead.wait() == -signal.SIGKILL
        async with host.open() as rye:
            [row] = await rye.threads.list(all=True)
            assert (row.status, (await rye.threads.verify(row.thread_id)).ok) == ("error", True)
            assert host.records(row.thread_id, "conversation_compacted")
            host.model._function.next = 26
            done = await rye.threads.resume(row.thread_id)
            assert (done.ended, done.text) == ("completed", "All seen."), done.error
        first = host.model.requests[0].messages
        assert "Summary 1." in first[0].text
        assert "place 24:" in str(first)
        assert "broken off while it ran" in str(first)  # place 25, whose effect is unknown
        check_order(first)

    async def test_a_summary_that_fails_leaves_the_handoff(self, tmp_path: Path) -> None:
        def broken(messages: Sequence[Message]) -> str:
            raise RuntimeError("no ink")

        host = looking(tmp_path, 24, compact=Compact(by=broken))
        done = await host.run(host.write("acme/look", "Look.", limits='turns="50"'))
        assert (done.ended, done.text) == ("completed", "All seen."), done.error
        async with host.open() as rye:
            new, old = await rye.threads.list(all=True)
        assert (old.status, new.continuation_of) == ("continued", old.thread_id)
        failed, *_ = host.records(old.thread_id, "compaction_failed")
        assert "no ink" in failed.payload["reason"]

    async def test_a_refusal_as_too_long_is_answered_with_a_summary(self, tmp_path: Path) -> None:
        script = [call("look", {"n": n}) for n in range(5)]
        model = ScriptedProvider([*script, fail("context_length"), "Done."])
        host = ScriptedHost(
            tmp_path,
            model=model,
            tools=[look],
            compact=Compact(by=one_line, keep_tokens=300, window_tokens=1_000_000),
        )
        done = await host.run(host.write("acme/look", "Look.", limits='turns="20"'))
        assert (done.ended, done.text) == ("completed", "Done."), done.error
        assert len(host.records(done.thread_id, "conversation_compacted")) == 1


class TestConfiguration:
    pytestmark = loops

    async def test_signed_configuration_says_when_without_the_host(self, tmp_path: Path) -> None:
        host = looking(tmp_path, 30, compact=None)
        host.workspace.write("config/agent/resilience.yaml", "context:\n  compact_at: 0.6\n")
        done = await host.run(host.write("acme/look", "Look.", limits='turns="50" spend="5"'))
        assert done.ended == "completed", done.error
        first = host.records(done.thread_id, "conversation_compacted")[0]
        assert 0.6 * 4_000 <= first.payload["tokens"] < 0.7 * 4_000
        assert host.model._function.summaries

    async def test_a_share_out_of_range_is_refused(self, tmp_path: Path) -> None:
        host = looking(tmp_path, 1)
        host.workspace.write("config/agent/resilience.yaml", "context:\n  compact_at: 80\n")
        with pytest.raises(ConfigError, match=r"compact_at.*above 0 and up to 1"):
            await host.run(host.write("acme/look", "Look."))


class TestRecords:
    """What stands in a transcript, for any conversation."""

    @given(messages=CONVERSATIONS, most=st.integers(0, 60))
    def test_a_conversation_is_rebuilt_with_its_summary(
        self, messages: list[Message], most: int
    ) -> None:
        cut = cut_for_summary(messages, most)
        if not cut:
            return
        shorter = with_summary(messages, cut, "Short.")
        summary = summary_in(shorter[0])
        assert summary is not None
        compaction = Compaction(shorter, len(messages) - len(shorter) + 1, summary, 90, 10, 100)
        said = record("conversation_compacted", **compaction_payload(1, compaction))
        assert tuple(rebuild([*records_of(messages), said]).messages) == shorter

    @given(messages=CONVERSATIONS, most=st.integers(0, 400))
    def test_what_is_handed_on_keeps_the_summary_within_the_budget(
        self, messages: list[Message], most: int
    ) -> None:
        plain = [Message(one.role, tuple(map(unmarked, one.parts))) for one in messages]
        cut = cut_for_summary(plain, 20)
        if not cut:
            return
        shorter = with_summary(plain, cut, "Short.")
        tail = keep_tail(shorter, most)
        assert tokens(tail) <= most
        assert not tail or tail[0].role == "user"
        check_order(tail)
        summary = summary_in(shorter[0])
        assert summary is not None
        if tokens([Message("user", (summary,))]) <= most // 2:
            assert summary in tail[0].parts


def unmarked(part: Any) -> Any:
    return TextPart(part.text) if isinstance(part, TextPart) else part


def export_of(host: ScriptedHost, thread_id: str) -> str:
    return host.workspace.path(f"knowledge/agent/threads/{thread_id}.md").read_text()
