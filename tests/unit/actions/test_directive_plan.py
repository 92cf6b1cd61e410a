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
from tests.house import events
from tests.unit.actions.directives import plan, write


def test_a_written_out_model_is_taken_as_it_is(house):
    write(house)
    house.write("config/agent/agent.yaml", "tiers: {", sign=False)  # not even looked at
    done = house.execute("directive:acme/research", {"topic": "x"}, model="acme/large")
    assert done.to_dict()["metadata"]["model"] == "acme/large"


def test_a_tier_is_looked_up_in_all_layers_of_the_signed_configuration(house):
    write(house, metadata='<model tier="fast"/>')
    house.write("config/agent/agent.yaml", "tiers: {fast: a/small, best: a/big}\n", space="user")
    house.write("config/agent/agent.yaml", "tiers: {best: b/big}\n")
    assert plan(house)["model"] == "a/small"
    assert plan(house, model="best")["model"] == "b/big"
    with pytest.raises(InputError, match="best, fast") as refusal:
        house.execute("directive:acme/research", {"topic": "x"}, model="slow")
    assert refusal.value.candidates == ("best", "fast")


def test_a_models_name_that_nothing_resolves_is_said_in_a_dry_run_and_stops_nothing(house):
    write(house, metadata='<model tier="fast"/>')
    assert house.execute("directive:acme/research", {"topic": "x"}).success
    document = plan(house)
    assert document["model"] is None
    assert "agent/agent.yaml" in document["model_problem"]


def test_limits_are_layered_defaults_configuration_directive_caller(house):
    write(house, metadata='<limits turns="8" spend="0.50"/>')
    house.write("config/agent/resilience.yaml", "limits: {turns: 7, depth: 2, spawns: 4}\n")
    limits = plan(house, limit_overrides={"spawns": 1, "max_tokens": "100"})["limits"]
    assert limits == {
        "turns": 8, "tokens": 100, "spend": 0.5, "spawns": 1, "depth": 2,
        "duration_seconds": 1800, "spend_currency": "USD",
    }  # fmt: skip


@pytest.mark.parametrize(
    "given", [{"laps": 1}, {"turns": -1}, {"turns": "x"}, [1], {1: 2}, "turns"]
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_limit_that_cannot_be_is_refused_inline_too(house, given, dry_run):
    write(house)
    with pytest.raises(InputError, match="limit_overrides"):
        house.execute(
            "directive:acme/research", {"topic": "x"}, limit_overrides=given, dry_run=dry_run
        )


@pytest.mark.parametrize("limits", ["limits: 3\n", "limits: {laps: 1}\n"])
def test_configured_limits_that_cannot_be_are_refused(house, limits):
    write(house)
    house.write("config/agent/resilience.yaml", limits)
    with pytest.raises(ConfigError, match=r"agent/resilience\.yaml, limits"):
        plan(house)


# Dry runs


def test_a_dry_run_shows_the_directive_and_what_its_thread_would_run_under(house):
    write(
        house,
        metadata="<description>Research.</description><permissions><execute><tool>rye/*</tool>"
        '</execute><acknowledge risk="elevated">Needed.</acknowledge></permissions>',
    )
    done = house.execute("directive:acme/research", {"topic": "x"}, dry_run=True)
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


def test_a_dry_run_checks_inputs_like_a_run(house):
    write(house)
    with pytest.raises(InvalidInputs, match="Missing required inputs: topic"):
        house.execute("directive:acme/research", dry_run=True)


def test_permissions_are_within_the_callers(house):
    write(house, metadata="<permissions>*</permissions>")
    held = frozenset({"rye.execute.directive.*", "rye.execute.tool.a"})
    shown = plan(house, ctx=CallContext(capabilities=held))["permissions"]
    assert set(shown) == held


def test_what_is_extended_brings_permissions_hooks_and_context(house):
    hook = '<hooks><hook id="h" event="error"><action control="retry"/></hook></hooks>'
    write(house, "base/root", "", metadata=f"<permissions>*</permissions>{hook}", space="user")
    write(
        house, "base/mid", "", extends="base/root", metadata="<context><before>k</before></context>"
    )
    write(house, extends="base/mid")
    document = plan(house, trace=True)
    assert document["extends"] == ["base/mid", "base/root"]
    assert document["permissions"] == ["rye.*"]
    assert [one["id"] for one in document["hooks"]] == ["h"]
    assert document["context"] == {"before": ["k"]}
    assert len(events(document["trace"], "verify_integrity")) == 3


def test_each_ancestor_is_verified(house):
    path = write(house, "base/root", "", metadata="<permissions/>")
    write(house, extends="base/root")
    path.write_text(path.read_text().replace("<permissions/>", "<permissions>*</permissions>"))
    with pytest.raises(ContentChanged) as refusal:
        plan(house)
    assert refusal.value.item_id == "directive:acme/research"


def test_an_ancestor_in_user_space_is_not_continued_in_the_project(house):
    write(house, "base/root", "", space="user", extends="base/top")
    write(house, "base/top", "")
    write(house, extends="base/root")
    with pytest.raises(ItemNotFound, match="base/top"):
        plan(house)


def test_a_circle_is_refused_with_the_way_around_it(house):
    write(house, extends="base/a")
    write(house, "base/a", "", extends="base/b")
    write(house, "base/b", "", extends="base/a")
    with pytest.raises(
        CircularDependency,
        match="Circular extends chain: acme/research -> base/a -> base/b -> base/a",
    ):
        plan(house)
    write(house, extends="acme/research")
    with pytest.raises(CircularDependency):
        plan(house)
    assert house.execute("directive:acme/research", {"topic": "x"}).success


def test_a_chain_has_a_bound(house):
    for number in range(MAX_EXTENDS):
        write(house, f"base/d{number}", "", extends=f"base/d{number + 1}")
    write(house, f"base/d{MAX_EXTENDS}", "")
    write(house, "base/d", "", extends="base/d0")
    with pytest.raises(ChainTooDeep, match=f"more than {MAX_EXTENDS}"):
        house.execute("directive:base/d", dry_run=True)
    assert house.execute("directive:base/d2", dry_run=True).success


HOOK = """\
hooks:
  - id: {name}
    event: {event}
    action: {action}
"""


def test_hooks_of_every_layer_are_shown_in_order(house):
    action = "{control: fail}"
    write(
        house, metadata='<hooks><hook id="d" event="error"><action control="fail"/></hook></hooks>'
    )
    for space, name in (("project", "p"), ("user", "u"), ("system", "s")):
        text = HOOK.format(name=name, event="error", action=action)
        house.write("config/agent/hooks.yaml", text, space=space)
    shown = [(one["id"], one["layer"]) for one in plan(house)["hooks"]]
    assert shown == [("u", 0), ("d", 1), ("s", 2), ("p", 3)]


def test_a_hook_may_reroute_what_is_extended(house):
    write(house, extends="base/a")
    write(house, "base/a", "")
    write(house, "base/b", "")
    text = HOOK.format(name="r", event="resolve_extends", action="{set_extends: base/b}")
    house.write("config/agent/hooks.yaml", text)
    assert plan(house)["extends"] == ["base/b"]


@pytest.mark.parametrize("name", ["agent", "hooks", "resilience"])
def test_an_unsigned_configuration_of_agents_is_refused_with_the_fix(house, name):
    write(house, metadata='<model tier="fast"/>')
    house.write(f"config/agent/{name}.yaml", "{}\n", sign=False)
    with pytest.raises(UnsignedItem, match=f"rye sign config:agent/{name}"):
        plan(house)
    assert house.execute("directive:acme/research", {"topic": "x"}).success


def test_a_broken_hook_is_refused_with_its_file_and_id(house):
    write(house)
    text = HOOK.format(name="h", event="boom", action="{control: fail}")
    path = house.write("config/agent/hooks.yaml", text)
    with pytest.raises(ConfigError, match=rf"{path}, hook 1 \(h\): 'boom' is no event"):
        plan(house)
