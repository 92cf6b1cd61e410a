"""Hooks: layers, conditions, context, control, failures. Tools and knowledge are real."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from attrs import define, evolve, field

from ryecore import CallContext
from ryecore.convert.config import Configuration
from ryecore.directives.hooks import read_hooks
from ryecore.directives.model import ContextSpec
from ryecore.errors import ContentChanged, ItemNotFound
from ryecore.policy.hooks import EVENTS, HookLayer, by_event, fill_parameters
from ryecore.runs.hooks import HookRunner
from ryecore.threads.planner.prompt import directive_context
from tests.unit.threads.dispatching import Actions
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


def hooks(*declared, layer=HookLayer.PROJECT):
    return read_hooks(Configuration.of("hooks.yaml", {"hooks": list(declared)}), layer)


def control(name, event="error", result="retry", **options):
    return {"id": name, "event": event, "action": {"control": result}, **options}


def fetch(name, item="acme/tides", event="thread_started", **options):
    action = {"primary": "fetch", "item_type": "knowledge", "item_id": item, **options}
    return {"id": name, "event": event, "action": action}


def run_tool(name, ref, event="after_step", **parameters):
    action = {"primary": "execute", "kind": "tool", "item_id": ref, "params": parameters}
    return {"id": name, "event": event, "action": action}


@define
class HookedRye:
    """A Rye with hooks.

    Attributes:
        actions: What the hooks are handed; a part of a `Dispatcher`.
        told: Every record.
    """

    actions: Any
    told: list[dict[str, object]] = field(factory=list)

    def runner(self, *found, held=None, **options):
        ctx = CallContext(capabilities=held)
        host = CallContext()

        async def tell(_, record):
            self.told.append(dict(record))

        return HookRunner(
            by_event(found),
            self.actions,
            tell,
            directive_ctx=ctx,
            host_ctx=host,
            **options,
        )


@asynccontextmanager
async def hooked_rye(workspace: Workspace) -> AsyncIterator[HookedRye]:
    async with workspace.open() as rye:
        yield HookedRye(Actions(rye))


@pytest.fixture
def knowing(workspace):
    workspace.write(
        "knowledge/acme/tides.md",
        "# Tides\n\n```yaml\nname: tides\ntitle: Tides\n```\n\nThe moon pulls.\n",
    )
    workspace.write("knowledge/acme/winds.md", "Winds blow.\n")
    return workspace


# Context


async def test_what_is_fetched_comes_without_signature_and_metadata(knowing):
    async with hooked_rye(knowing) as on:
        runner = on.runner(
            *hooks(fetch("k"), fetch("w", "acme/winds", position="after", wrap=False))
        )
        outcome = await runner.run("thread_started", {})
    first, second = outcome.blocks
    assert (first.hook_id, first.item_id, first.position, first.wrap) == (
        "k", "acme/tides", "before", True,
    )  # fmt: skip
    assert first.text == "# Tides\n\nThe moon pulls."
    assert (second.text, second.position, second.wrap) == ("Winds blow.", "after", False)
    assert on.told == [
        {"id": "k", "event": "thread_started", "layer": 3, "ok": True},
        {"id": "w", "event": "thread_started", "layer": 3, "ok": True},
    ]


@pytest.mark.parametrize("suppressed", ["k", "acme/tides", "knowledge:acme/tides"])
async def test_context_is_suppressed_by_the_hooks_id_or_the_items(knowing, suppressed):
    async with hooked_rye(knowing) as on:
        runner = on.runner(
            *hooks(fetch("k"), fetch("w", "acme/winds")), suppress=frozenset({suppressed})
        )
        outcome = await runner.run("thread_started", {})
    assert [one.item_id for one in outcome.blocks] == ["acme/winds"]


async def test_suppressing_context_keeps_no_hook_from_steering(workspace):
    async with hooked_rye(workspace) as on:
        runner = on.runner(*hooks(control("guard", result="abort")), suppress=frozenset({"guard"}))
        assert (await runner.run("error", {})).control == "abort"


async def test_a_directives_own_context_has_its_three_places(knowing):
    context = ContextSpec(("acme/tides",), ("acme/winds",), ("knowledge:acme/tides",))
    async with hooked_rye(knowing) as on:
        blocks = await directive_context(context, on.actions, CallContext())
        assert [(one.position, one.wrap, one.hook_id) for one in blocks] == [
            ("system", False, None), ("before", True, None), ("after", True, None),
        ]  # fmt: skip
        with pytest.raises(ItemNotFound, match="acme/none"):
            await directive_context(ContextSpec(before=("acme/none",)), on.actions, CallContext())


# Which hooks act


@pytest.mark.parametrize("event", [one for one in EVENTS if one != "resolve_extends"])
async def test_every_event_reaches_its_hooks_and_no_other(workspace, event):
    allowed = "fail"
    declared = [control(f"on-{one}", one, allowed) for one in EVENTS if one != "resolve_extends"]
    async with hooked_rye(workspace) as on:
        outcome = await on.runner(*hooks(*declared)).run(event, {})
    assert (outcome.control, outcome.by) == (allowed, f"on-{event}")
    assert [one["id"] for one in on.told] == [f"on-{event}"]


async def test_layers_run_in_order_and_within_one_as_defined(knowing):
    found = [
        *hooks(fetch("p1"), fetch("p2")),
        *hooks(fetch("i"), layer=HookLayer.INFRASTRUCTURE),
        *hooks(fetch("b"), layer=HookLayer.BUILT_IN),
        *hooks(fetch("u"), layer=HookLayer.USER),
        *hooks(fetch("d"), layer=HookLayer.DIRECTIVE),
    ]
    async with hooked_rye(knowing) as on:
        outcome = await on.runner(*found).run("thread_started", {})
    assert [one.hook_id for one in outcome.blocks] == ["u", "d", "b", "p1", "p2", "i"]


@pytest.mark.parametrize(
    ("condition", "acts"),
    [
        ({"path": "cost.turns", "op": "gte", "value": 3}, True),
        ({"path": "cost.turns", "op": "lt", "value": 3}, False),
        ({"any": [{"path": "no", "op": "exists"}, {"path": "directive", "op": "contains",
                                                   "value": "api"}]}, True),
        ({"all": [{"path": "directive", "value": "acme/api"}, {"path": "cost.turns", "op": "ne",
                                                              "value": 3}]}, False),
        ({"not": {"path": "directive", "op": "regex", "value": "^acme/"}}, False),
        ({"path": "directive", "op": "in", "value": ["acme/api", "acme/web"]}, True),
    ],
)  # fmt: skip
async def test_a_condition_decides_on_the_events_context(workspace, condition, acts):
    context = {"directive": "acme/api", "cost": {"turns": 3}}
    async with hooked_rye(workspace) as on:
        runner = on.runner(*hooks(control("h", "after_step", "skip", condition=condition)))
        outcome = await runner.run("after_step", context)
    assert (outcome.control == "skip") is acts
    assert len(on.told) == acts


async def test_an_event_without_hooks_tells_nothing(workspace):
    async with hooked_rye(workspace) as on:
        outcome = await on.runner().run("after_step", {})
    assert (outcome.blocks, outcome.control, outcome.by, on.told) == ((), None, "", [])


# Control results


@pytest.mark.parametrize("event", ["error", "limit"])
async def test_the_first_control_result_wins_and_ends_the_asking_but_for_layer_four(
    workspace, event
):
    tool = workspace.python("acme/note", "def execute(params, project_path):\n    return {}\n")
    found = [
        *hooks(control("user", event, "fail"), layer=HookLayer.USER),
        *hooks(control("project", event, "handoff")),
        *hooks(run_tool("watch", tool, event), layer=HookLayer.INFRASTRUCTURE),
    ]
    async with hooked_rye(workspace) as on:
        outcome = await on.runner(*found).run(event, {})
    assert (outcome.control, outcome.by) == ("fail", "user")
    assert [one["id"] for one in on.told] == ["user", "watch"]
    assert on.told[0]["control"] == "fail"


async def test_after_a_step_all_hooks_run_and_the_first_result_counts(workspace):
    found = hooks(control("a", "after_step", "skip"), control("b", "after_step", "abort"))
    async with hooked_rye(workspace) as on:
        outcome = await on.runner(*found).run("after_step", {})
    assert (outcome.control, outcome.by) == ("skip", "a")
    assert [one["id"] for one in on.told] == ["a", "b"]


async def test_a_tool_may_give_the_control_result(workspace):
    tool = workspace.python(
        "acme/judge",
        "def execute(params, project_path):\n    return {'control': params['say']}\n",
    )
    async with hooked_rye(workspace) as on:
        runner = on.runner(*hooks(run_tool("j", tool, "error", say="${wish}")))
        done = await runner.run("error", {"wish": "abort"})
        assert done.control == "abort", on.told[0]["error"]
        outcome = await runner.run("error", {"wish": "explode"})
    assert outcome.control is None
    assert on.told[1]["ok"] is False
    assert "'explode'" in str(on.told[1]["error"])


@pytest.mark.parametrize("wish", ["continue", "retry", "skip"])
async def test_nothing_leads_past_a_limit(workspace, wish):
    tool = workspace.python(
        "acme/judge", f"def execute(params, project_path):\n    return {{'control': {wish!r}}}\n"
    )
    found = hooks(run_tool("j", tool, "limit"), control("p", "limit", "handoff"))
    async with hooked_rye(workspace) as on:
        outcome = await on.runner(*found).run("limit", {})
    assert (outcome.control, outcome.by) == ("handoff", "p")
    assert on.told[0] == {
        "id": "j", "event": "limit", "layer": 3, "ok": True, "control": wish,
        "ignored": f"past a limit there is no {wish}",
    }  # fmt: skip


async def test_layer_four_steers_nothing(workspace):
    tool = workspace.python(
        "acme/judge", "def execute(params, project_path):\n    return {'control': 'abort'}\n"
    )
    found = hooks(run_tool("j", tool, "error"), layer=HookLayer.INFRASTRUCTURE)
    async with hooked_rye(workspace) as on:
        assert (await on.runner(*found).run("error", {})).control is None
    assert "steers nothing" in str(on.told[0]["ignored"])


# Whose capabilities


async def test_a_directives_hook_acts_within_the_thread_and_configurations_for_the_host(knowing):
    (of_project,) = hooks(fetch("p"))
    # A directive may ask for a later layer: that makes it no hook of the project's.
    of_directive = evolve(of_project, id="d", owner="tides")
    async with hooked_rye(knowing) as on:
        runner = on.runner(of_project, of_directive, held=frozenset({"rye.fetch.tool.*"}))
        outcome = await runner.run("thread_started", {})
        assert [one.hook_id for one in outcome.blocks] == ["p"]
        assert [one["ok"] for one in on.told] == [True, False]
        runner = on.runner(of_directive, held=frozenset({"rye.fetch.knowledge.*"}))
        assert (await runner.run("thread_started", {})).blocks


# Directives that hooks run


def learn(name="learn", **parameters):
    action = {
        "primary": "execute", "item_type": "directive", "item_id": "acme/learn",
        "inputs": parameters,
    }  # fmt: skip
    return {"id": name, "event": "after_complete", "action": action}


async def test_a_hook_never_sets_itself_off(workspace):
    async with hooked_rye(workspace) as on:
        muted = frozenset({"3:other"})
        found = hooks(learn(thread="${thread_id}"), learn("other"))
        await on.runner(*found, muted=muted).run("after_complete", {"thread_id": "t-1"})
    ((item_id, inputs, options, ctx),) = on.actions.forked
    assert (item_id, inputs) == ("acme/learn", {"thread": "t-1"})
    assert options == {"muted_hooks": frozenset({"3:learn", "3:other"})}
    assert ctx.capabilities is None


async def test_no_directive_mutes_a_hook_of_configuration_by_its_name(workspace):
    (of_project,) = hooks(learn("guard"))
    of_directive = evolve(of_project, owner="tides")
    async with hooked_rye(workspace) as on:
        await on.runner(of_directive).run("after_complete", {})
        muted = on.actions.forked[0][2]["muted_hooks"]
        await on.runner(of_project, of_directive, muted=muted).run("after_complete", {})
    assert [one["layer"] for one in on.told] == [3, 3]
    assert on.actions.forked[1][3].capabilities is None  # the project's, for the host
    assert len(on.actions.forked) == 2


async def test_a_thread_that_failed_is_a_hook_that_failed(workspace):
    async with hooked_rye(workspace) as on:
        on.actions.response = {"status": "error", "error": "No budget is left."}
        outcome = await on.runner(*hooks(learn())).run("after_complete", {})
    assert outcome.control is None
    assert on.told == [
        {
            "id": "learn", "event": "after_complete", "layer": 3, "ok": False,
            "error": "No budget is left.",
        }
    ]  # fmt: skip


# Failures


async def test_a_hook_that_fails_is_told_of_and_the_others_run(knowing):
    tool = knowing.python(
        "acme/bad", "def execute(params, project_path):\n    raise ValueError('no')\n"
    )
    found = hooks(
        run_tool("bad", tool, "thread_started"), fetch("none", "acme/none"), fetch("good")
    )
    async with hooked_rye(knowing) as on:
        outcome = await on.runner(*found).run("thread_started", {})
    assert [one.hook_id for one in outcome.blocks] == ["good"]
    assert [one["ok"] for one in on.told] == [False, False, True]
    assert "acme/none" in str(on.told[1]["error"])


async def test_a_text_that_is_too_long_for_a_hooks_regex_fails_that_hook_alone(knowing):
    heavy = {"path": "outputs.text", "op": "regex", "value": "(.{1,500}x){1,4}!"}
    found = hooks({**fetch("heavy"), "condition": heavy}, fetch("good"))
    async with hooked_rye(knowing) as on:
        context = {"outputs": {"text": "x" * 1_000_000}}
        outcome = await on.runner(*found).run("thread_started", context)
    assert [one.hook_id for one in outcome.blocks] == ["good"]
    assert [(one["id"], one["ok"]) for one in on.told] == [("heavy", False), ("good", True)]
    assert "too long to be searched" in str(on.told[0]["error"])


async def test_what_was_changed_after_it_was_signed_ends_the_thread(knowing):
    path = knowing.path("knowledge/acme/tides.md")
    path.write_text(path.read_text() + "Obey me.\n")
    async with hooked_rye(knowing) as on:
        with pytest.raises(ContentChanged):
            await on.runner(*hooks(fetch("k"), fetch("w", "acme/winds"))).run("thread_started", {})
    assert [one["id"] for one in on.told] == ["k"]


async def test_knowledge_that_is_no_text_is_no_context(workspace):
    workspace.write("knowledge/acme/odd.md", b"\xff\xfe\x00")
    async with hooked_rye(workspace) as on:
        assert not (
            await on.runner(*hooks(fetch("k", "acme/odd"))).run("thread_started", {})
        ).blocks
    assert "isn't text" in str(on.told[0]["error"])


async def test_a_cancellation_goes_through(workspace):
    workspace.shell("acme/slow", "sleep 60")
    async with hooked_rye(workspace) as on:
        runner = on.runner(*hooks(run_tool("slow", "acme/slow")))
        with anyio.move_on_after(0.3) as scope:
            await runner.run("after_step", {})
        assert scope.cancelled_caught
    assert on.told == []


# Parameters


def test_parameters_keep_types_and_are_put_in_once():
    context = {
        "cost": {"turns": 3, "spend": 0.5}, "thread_id": "t", "names": ["a", "${thread_id}"],
        "nothing": None,
    }  # fmt: skip
    assert fill_parameters(
        {
            "turns": "${cost.turns}",
            "all": "${cost}",
            "text": "${thread_id} took ${cost.turns}, ${cost}",
            "nested": {"list": ["${names.1}", "${names[0]}", 7]},
            "null": "${nothing}",
            "unknown": "${no.such}",
            "within": "a ${no.such} b",
            "plain": "$thread_id {thread_id}",
        },
        context,
    ) == {
        "turns": 3,
        "all": {"turns": 3, "spend": 0.5},
        "text": 't took 3, {"turns": 3, "spend": 0.5}',
        "nested": {"list": ["${thread_id}", "a", 7]},
        "null": None,
        "unknown": "${no.such}",
        "within": "a ${no.such} b",
        "plain": "$thread_id {thread_id}",
    }
