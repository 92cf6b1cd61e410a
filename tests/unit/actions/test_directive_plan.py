"""What a directive's thread would run under: model, limits, ancestors, hooks."""

import json

import pytest

from ryecore import CallContext
from ryecore.errors import (
    ChainTooDeep,
    CircularDependency,
    ConfigError,
    ContentChanged,
    InputError,
    InvalidInputs,
    ItemNotFound,
    UnsignedItem,
)
from ryecore.threads.planner.planning import MAX_EXTENDS
from tests.unit.actions.directives import plan, write
from tests.workspace import events


def test_a_written_out_model_is_taken_as_it_is(workspace):
    write(workspace)
    workspace.write("config/agent/agent.yaml", "tiers: {", sign=False)  # not even looked at
    done = workspace.execute("directive:acme/research", {"topic": "x"}, model="acme/large")
    assert done.to_dict()["metadata"]["model"] == "acme/large"


def test_a_tier_is_looked_up_in_all_layers_of_the_signed_configuration(workspace):
    write(workspace, metadata='<model tier="fast"/>')
    workspace.write(
        "config/agent/agent.yaml", "tiers: {fast: a/small, best: a/big}\n", space="user"
    )
    workspace.write("config/agent/agent.yaml", "tiers: {best: b/big}\n")
    assert plan(workspace)["model"] == "a/small"
    assert plan(workspace, model="best")["model"] == "b/big"
    with pytest.raises(InputError, match="best, fast") as refusal:
        workspace.execute("directive:acme/research", {"topic": "x"}, model="slow")
    assert refusal.value.candidates == ("best", "fast")


def test_a_models_name_that_nothing_resolves_is_said_in_a_dry_run_and_stops_nothing(workspace):
    write(workspace, metadata='<model tier="fast"/>')
    assert workspace.execute("directive:acme/research", {"topic": "x"}).success
    document = plan(workspace)
    assert document["model"] is None
    assert "agent/agent.yaml" in document["model_problem"]


def test_limits_are_layered_defaults_configuration_directive_caller(workspace):
    write(workspace, metadata='<limits turns="8" spend="0.50"/>')
    workspace.write("config/agent/resilience.yaml", "limits: {turns: 7, depth: 2, spawns: 4}\n")
    limits = plan(workspace, limits={"spawns": 1, "max_tokens": "100"})["limits"]
    assert limits == {
        "turns": 8, "tokens": 100, "spend": 0.5, "spawns": 1, "depth": 2,
        "duration_seconds": 1800, "spend_currency": "USD",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"laps": 1}, "unknown limit 'laps': the limits are turns, tokens, spend"),
        ({"turns": -1}, "turns is -1, not a whole number"),
        ({"turns": "x"}, "turns is 'x', not a whole number"),
        ([1], "Limits must be a mapping, not list"),
        ({1: 2}, "Limits must have text keys, not 1"),
        ("turns", "Limits must be a mapping, not str"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_limit_that_cannot_be_is_refused_inline_too(workspace, given, said, dry_run):
    write(workspace)
    with pytest.raises(InputError, match=said):
        workspace.execute("directive:acme/research", {"topic": "x"}, limits=given, dry_run=dry_run)


@pytest.mark.parametrize("limits", ["limits: 3\n", "limits: {laps: 1}\n"])
def test_configured_limits_that_cannot_be_are_refused(workspace, limits):
    write(workspace)
    workspace.write("config/agent/resilience.yaml", limits)
    with pytest.raises(ConfigError, match=r"agent/resilience\.yaml, line 2: limits"):
        plan(workspace)


# Dry runs


def test_a_dry_run_shows_the_directive_and_what_its_thread_would_run_under(workspace):
    write(
        workspace,
        metadata="<description>Research.</description><permissions><execute><tool>rye/*</tool>"
        '</execute><acknowledge risk="elevated">Needed.</acknowledge></permissions>',
    )
    done = workspace.execute("directive:acme/research", {"topic": "x"}, dry_run=True)
    document = done.to_dict()
    assert document["status"] == "validation_passed"
    assert document["message"] == "Directive validation passed (dry run)"
    assert document["data"]["body"] == "Research x in 3 steps."
    assert document["data"]["description"] == "Research."
    assert document["inputs"] == {"topic": "x", "n": 3}
    assert document["permissions"] == ["rye.execute.tool.rye.*"]
    assert document["acknowledged_risks"] == [{"risk": "elevated", "reason": "Needed."}]
    assert "your_directions" not in document
    assert done.your_directions == ""
    assert json.loads(done.to_json()) == document
    assert "rye.execute.tool.rye.*" in str(done)


def test_a_dry_run_checks_inputs_like_a_run(workspace):
    write(workspace)
    with pytest.raises(InvalidInputs, match="Missing required inputs: topic"):
        workspace.execute("directive:acme/research", dry_run=True)


def test_permissions_are_within_the_callers(workspace):
    write(workspace, metadata="<permissions>*</permissions>")
    held = frozenset({"rye.execute.directive.*", "rye.execute.tool.a"})
    shown = plan(workspace, ctx=CallContext(capabilities=held))["permissions"]
    assert set(shown) == held


def test_what_is_extended_brings_permissions_hooks_and_context(workspace):
    hook = '<hooks><hook id="h" event="error"><action control="retry"/></hook></hooks>'
    write(workspace, "base/root", "", metadata=f"<permissions>*</permissions>{hook}", space="user")
    write(
        workspace,
        "base/mid",
        "",
        extends="base/root",
        metadata="<context><before>k</before></context>",
    )
    write(workspace, extends="base/mid")
    document = plan(workspace, trace=True)
    assert document["extends"] == ["base/mid", "base/root"]
    assert document["permissions"] == ["rye.*"]
    assert [one["id"] for one in document["hooks"]] == ["h"]
    assert document["context"] == {"before": ["k"]}
    assert len(events(document["trace"], "verify_integrity")) == 3


def test_each_ancestor_is_verified(workspace):
    path = write(workspace, "base/root", "", metadata="<permissions/>")
    write(workspace, extends="base/root")
    path.write_text(path.read_text().replace("<permissions/>", "<permissions>*</permissions>"))
    with pytest.raises(ContentChanged) as refusal:
        plan(workspace)
    assert refusal.value.item_id == "directive:acme/research"


def test_an_ancestor_in_user_space_is_not_continued_in_the_project(workspace):
    write(workspace, "base/root", "", space="user", extends="base/top")
    write(workspace, "base/top", "")
    write(workspace, extends="base/root")
    with pytest.raises(ItemNotFound, match="base/top"):
        plan(workspace)


def test_a_circle_is_refused_with_the_way_around_it(workspace):
    write(workspace, extends="base/a")
    write(workspace, "base/a", "", extends="base/b")
    write(workspace, "base/b", "", extends="base/a")
    with pytest.raises(
        CircularDependency,
        match="Circular extends chain: acme/research -> base/a -> base/b -> base/a",
    ):
        plan(workspace)
    write(workspace, extends="acme/research")
    with pytest.raises(CircularDependency):
        plan(workspace)
    assert workspace.execute("directive:acme/research", {"topic": "x"}).success


def test_a_chain_has_a_bound(workspace):
    for number in range(MAX_EXTENDS):
        write(workspace, f"base/d{number}", "", extends=f"base/d{number + 1}")
    write(workspace, f"base/d{MAX_EXTENDS}", "")
    write(workspace, "base/d", "", extends="base/d0")
    with pytest.raises(ChainTooDeep, match=f"more than {MAX_EXTENDS}"):
        workspace.execute("directive:base/d", dry_run=True)
    assert workspace.execute("directive:base/d2", dry_run=True).success


HOOK = """\
hooks:
  - id: {name}
    event: {event}
    action: {action}
"""


def test_hooks_of_every_layer_are_shown_in_order(workspace):
    action = "{control: fail}"
    write(
        workspace,
        metadata='<hooks><hook id="d" event="error"><action control="fail"/></hook></hooks>',
    )
    for space, name in (("project", "p"), ("user", "u"), ("system", "s")):
        text = HOOK.format(name=name, event="error", action=action)
        workspace.write("config/agent/hooks.yaml", text, space=space)
    shown = [(one["id"], one["layer"]) for one in plan(workspace)["hooks"]]
    assert shown == [("u", 0), ("d", 1), ("s", 2), ("p", 3)]


def test_a_hook_may_reroute_what_is_extended(workspace):
    write(workspace, extends="base/a")
    write(workspace, "base/a", "")
    write(workspace, "base/b", "")
    text = HOOK.format(name="r", event="resolve_extends", action="{set_extends: base/b}")
    workspace.write("config/agent/hooks.yaml", text)
    assert plan(workspace)["extends"] == ["base/b"]


@pytest.mark.parametrize("name", ["agent", "hooks", "resilience"])
def test_an_unsigned_configuration_of_agents_is_refused_with_the_fix(workspace, name):
    write(workspace, metadata='<model tier="fast"/>')
    workspace.write(f"config/agent/{name}.yaml", "{}\n", sign=False)
    with pytest.raises(UnsignedItem, match=f"rye sign config:agent/{name}"):
        plan(workspace)
    assert workspace.execute("directive:acme/research", {"topic": "x"}).success


def test_a_broken_hook_is_refused_with_its_file_and_line(workspace):
    write(workspace)
    text = HOOK.format(name="h", event="boom", action="{control: fail}")
    path = workspace.write("config/agent/hooks.yaml", text)
    with pytest.raises(
        ConfigError, match=rf"{path}, line 4: hooks\[0\]\.event must be one of .* not 'boom'"
    ):
        plan(workspace)
