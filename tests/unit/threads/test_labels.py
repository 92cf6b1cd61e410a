"""Labels of threads: kept with their rows, inherited by children, shown, and never changed."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ryecore import CallContext
from ryecore.errors import InputError
from ryecore.llm.provider import LlmProvider
from ryecore.llm.request import LlmRequest
from ryecore.testing import call, say
from ryecore.tools import ToolContext, tool
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio

CHILDREN = "<execute><directive>acme/*</directive><tool>host/*</tool></execute>"


async def test_a_thread_keeps_its_labels_and_its_tools_and_children_get_them(
    tmp_path: Path,
) -> None:
    met: list[dict[str, str]] = []

    @tool
    async def who(ctx: ToolContext) -> str:
        """Note the labels of the call."""
        met.append(dict(ctx.call.labels))
        return "noted"

    def model(request: LlmRequest) -> Any:
        is_parent = "Parent." in request.messages[0].text
        if len(request.messages) > 1:
            return say("done")
        if is_parent:
            return call("rye_execute", {"item_id": "directive:acme/child", "thread": "fork"})
        return call("who", {})

    host = ScriptedHost(tmp_path, model=model, tools=[who])
    ref = host.write("acme/parent", "Parent.", permissions=CHILDREN)
    host.write("acme/child", "Child.")
    async with host.open() as rye:
        done = await rye.execute(ref, thread="fork", labels={"tenant": "acme", "user": "u-1"})
        assert done.success
        shown = await rye.threads.show(done.thread_id)
        (child,) = shown.children
        assert shown.to_dict()["labels"] == {"tenant": "acme", "user": "u-1"}
        assert child.labels == {"tenant": "acme", "user": "u-1"}
        assert "labels  tenant=acme user=u-1" in shown.render().plain()
    assert met == [{"tenant": "acme", "user": "u-1"}]


async def test_a_resumed_thread_has_the_labels_of_the_first_whoever_resumes_it(
    tmp_path: Path,
) -> None:
    host = ScriptedHost(tmp_path, say("one"), say("two"))
    ref = host.write("acme/talk")
    async with host.open() as rye:
        first = await rye.execute(ref, thread="fork", labels={"tenant": "acme"})
        another = CallContext(labels={"tenant": "other", "by": "support"})
        resumed = await rye.threads.resume(first.thread_id, "More.", ctx=another)
        row = (await rye.threads.show(resumed.thread_id)).record
    assert row.labels == {"by": "support", "tenant": "acme"}


async def test_a_key_of_one_tenant_finds_no_thread_of_another(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("one"))
    ref = host.write("acme/talk")
    async with host.open() as rye:
        first = await rye.start(ref, labels={"tenant": "acme"}, idempotency_key="k")
        await first.result()
        again = await rye.start(ref, labels={"tenant": "acme"}, idempotency_key="k")
        assert again.thread_id == first.thread_id
        with pytest.raises(InputError, match="with other parameters"):
            await rye.start(ref, labels={"tenant": "other"}, idempotency_key="k")


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ("tenant", "a str, not a mapping"),
        ({"": "x"}, "isn't the name of a label"),
        ({"a b": "x"}, "isn't the name of a label"),
        ({"tenant": 7}, "the label tenant isn't a text"),
        ({"tenant": ""}, "the label tenant isn't a text"),
        ({"tenant": "\x1b[2J"}, "has a control character"),
        ({f"n{number}": "x" for number in range(33)}, "33 labels are more than 32"),
    ],
)
async def test_other_labels_are_refused_before_anything_runs(
    tmp_path: Path, labels: Any, why: str
) -> None:
    host = ScriptedHost(tmp_path)
    ref = host.write("acme/talk")
    async with host.open() as rye:
        with pytest.raises(InputError, match=why) as refused:
            await rye.start(ref, labels=labels)
        assert refused.value.next_step
        assert await rye.threads.list(all=True) == ()
    with pytest.raises(InputError, match=why):
        CallContext(labels=labels)


def test_a_context_keeps_the_labels_that_it_has() -> None:
    ctx = CallContext(labels={"tenant": "acme"}).labelled({"tenant": "other", "user": "u-1"})
    assert ctx.labels == {"tenant": "acme", "user": "u-1"}
    assert ctx.part().labels == ctx.for_host().labels == ctx.as_call("c").labels == ctx.labels
    assert ctx.labelled(None) is ctx


async def test_providers_and_keys_are_those_of_the_thread_s_labels(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []
    host = ScriptedHost(tmp_path, say("one"))

    def provider(provider_id: str, call: CallContext) -> LlmProvider | None:
        asked.append(("provider", call.labels["tenant"]))
        return host.providers.get(provider_id)

    def key(provider_id: str, call: CallContext) -> str:
        asked.append(("key", call.labels["tenant"]))
        return "k"

    deps = evolve(host.deps, resolve_provider=provider, key_for=key)
    async with host.open(agent=deps) as rye:
        ref = host.write("acme/talk")
        await rye.execute(ref, thread="fork", labels={"tenant": "acme"})
    assert set(asked) == {("provider", "acme"), ("key", "acme")}
