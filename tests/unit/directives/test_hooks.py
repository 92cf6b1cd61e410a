"""Hooks, as XML and as YAML: one model."""

import pytest
from attrs import evolve

from ryecore.convert.config import Configuration
from ryecore.directives.hooks import read_hooks
from ryecore.errors import ConfigError, MetadataError
from ryecore.policy.hooks import HookLayer
from tests.unit.directives.files import file, parse


def hooks(inside):
    return parse(file(metadata=f"<hooks>{inside}</hooks>")).hooks


def yaml(*declared, layer=HookLayer.PROJECT):
    return read_hooks(Configuration.of("hooks.yaml", {"hooks": list(declared)}), layer)


FETCH = {"primary": "fetch", "item_type": "knowledge", "item_id": "project/conventions"}


def test_the_documented_forms_are_read():
    conventions, types, learnings = yaml(
        {"id": "a", "event": "thread_started", "action": FETCH, "description": "Inject."},
        {
            "id": "b",
            "event": "thread_started",
            "condition": {"path": "directive", "op": "contains", "value": "api"},
            "action": FETCH,
        },
        {
            "id": "c",
            "event": "after_complete",
            "condition": {"path": "cost.turns", "op": "gte", "value": 3},
            "action": {"primary": "execute", "kind": "directive", "item_id": "project/learn"},
        },
    )
    assert str(conventions.actions[0].item) == "knowledge:project/conventions"
    assert conventions.layer is HookLayer.PROJECT
    assert conventions.answers("thread_started", {})
    assert not conventions.answers("after_step", {})
    assert types.answers("thread_started", {"directive": "acme/api"})
    assert not types.answers("thread_started", {"directive": "acme/web"})
    assert learnings.answers("after_complete", {"cost": {"turns": 3}})
    assert str(learnings.actions[0].item) == "directive:project/learn"


def test_xml_and_yaml_say_the_same():
    (from_xml,) = hooks(
        """<hook id="h" event="after_step"><description>Log it.</description>
        <any><condition path="cost.turns" op="gt" value="3"/>
        <not><condition path="name" op="regex" value="^\\d+$"/></not></any>
        <action primary="execute" item_type="tool" item_id="acme/log">
        <param name="level">2</param><param name="text">hi</param></action>
        <action control="skip"/></hook>"""
    )
    (from_yaml,) = yaml(
        {
            "id": "h",
            "event": "after_step",
            "description": "Log it.",
            "condition": {
                "any": [
                    {"path": "cost.turns", "op": "gt", "value": 3},
                    {"not": {"path": "name", "op": "regex", "value": r"^\d+$"}},
                ]
            },
            "actions": [
                {
                    "primary": "execute",
                    "item_id": "tool:acme/log",
                    "params": {"level": 2, "text": "hi"},
                },
                {"control": "skip"},
            ],
        },
        layer=HookLayer.DIRECTIVE,
    )
    assert from_xml == evolve(from_yaml, owner="tides")
    assert from_xml.to_dict() == {**from_yaml.to_dict(), "owner": "tides"}


@pytest.mark.parametrize("control", ["handoff", "fail", "abort"])
def test_a_hook_on_a_limit_may_end_or_hand_off(control):
    (hook,) = hooks(f'<hook id="h" event="limit"><action control="{control}"/></hook>')
    assert hook.actions[0].control == control


def test_a_condition_may_hold_another_form():
    (hook,) = hooks(
        '<hook id="h" event="error"><condition><all><condition path="a" op="exists"/>'
        '<condition path="b" value=\'["x"]\'/></all></condition><action control="fail"/></hook>'
    )
    assert hook.answers("error", {"a": 1, "b": ["x"]})
    assert not hook.answers("error", {"a": 1, "b": "x"})


def test_a_hook_may_reroute_what_a_directive_extends():
    (hook,) = hooks(
        '<hook id="h" event="resolve_extends"><action set_extends="directive:base/web"/></hook>'
    )
    assert hook.actions[0].set_extends == "base/web"


def test_a_hook_may_move_behind_its_layer_and_never_before_it():
    assert yaml({"id": "a", "event": "error", "layer": 4, "action": FETCH})[0].layer == 4
    with pytest.raises(ConfigError, match="before 3, where its file stands"):
        yaml({"id": "a", "event": "error", "layer": 0, "action": FETCH})


ACTION = '<action control="fail"/>'


@pytest.mark.parametrize(
    ("inside", "match"),
    [
        (f'<hook event="error">{ACTION}</hook>', "<hook>: id is missing"),
        (f'<hook id="a">{ACTION}</hook>', "<hook>: event is missing"),
        (
            f'<hook id="a" event="boom">{ACTION}</hook>',
            "event must be one of resolve_extends, .*, not 'boom'",
        ),
        ('<hook id="a" event="error"/>', "no action"),
        (f'<hook id="a" event="error" layer="9">{ACTION}</hook>', "from 0 to 4, not '9'"),
        (f'<hook id="a" event="error" layer="0">{ACTION}</hook>', "before 1"),
        (f'<hook id="a" event="error" when="x">{ACTION}</hook>', "attribute 'when'"),
        (
            f'<hook id="a" event="error"><condition path="a" op="like"/>{ACTION}</hook>',
            "'like' is not an operator; the operators are eq",
        ),
        (
            f'<hook id="a" event="error"><condition path="a" op="regex" value="("/>{ACTION}</hook>',
            "not a regular expression",
        ),
        (f'<hook id="a" event="error"><condition op="eq"/>{ACTION}</hook>', "has no path"),
        (f'<hook id="a" event="error"><not/>{ACTION}</hook>', "holds one condition"),
        (f'<hook id="a" event="error"><any/><all/>{ACTION}</hook>', "a second condition"),
        ('<hook id="a" event="error"><action/></hook>', "one of primary, set_extends"),
        (
            '<hook id="a" event="error"><action primary="execute" control="fail"/></hook>',
            "one of primary",
        ),
        (
            '<hook id="a" event="error"><action control="panic"/></hook>',
            "control must be one of .*, not 'panic'",
        ),
        (
            '<hook id="a" event="error"><action primary="sign" item_id="x"/></hook>',
            "primary must be one of execute, fetch, not 'sign'",
        ),
        ('<hook id="a" event="error"><action primary="fetch"/></hook>', "must have an item_id"),
        (
            '<hook id="a" event="error"><action primary="fetch" item_id="x"/></hook>',
            "doesn't say what kind",
        ),
        (
            '<hook id="a" event="error"><action primary="execute" item_id="knowledge:x"/></hook>',
            "one of tool, directive",
        ),
        (
            '<hook id="a" event="error"><action primary="execute" kind="tool" item_type="directive"'
            ' item_id="x"/></hook>',
            "the kind tool and the item_type directive",
        ),
        (
            '<hook id="a" event="error"><action primary="execute" item_id="tool:../x"/></hook>',
            "not an item id",
        ),
        ('<hook id="a" event="error"><action set_extends="x"/></hook>', "for the event"),
        ('<hook id="a" event="limit"><action control="continue"/></hook>', "past a limit"),
        (f'<hook id="a" event="error" layer="4">{ACTION}</hook>', "layer 4, which observes"),
        (
            '<hook id="a" event="resolve_extends" layer="4"><action set_extends="x"/></hook>',
            "layer 4, which observes",
        ),
        (
            f'<hook id="a" event="error">{ACTION}</hook><hook id="a" event="error">{ACTION}</hook>',
            "once more",
        ),
    ],
)
def test_a_hook_that_cannot_be_is_refused_with_its_line(inside, match):
    with pytest.raises(MetadataError, match=match) as refusal:
        hooks(inside)
    assert refusal.value.line == 5


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"hooks": {}}, "hooks must be a list"),
        ({"hook": []}, "hook is unknown. Did you mean 'hooks'"),
        ({"hooks": ["x"]}, r"hooks\[0\] must be a mapping"),
        ({"hooks": [{"id": "a", "event": "error", "actions": []}]}, r"hooks\[0\] has no action"),
        (
            {"hooks": [{"id": "a", "event": "error", "actoin": {}}]},
            "actoin is unknown. Did you mean 'action'",
        ),
        ({"hooks": [{"id": "a", "event": "error", "action": FETCH | {"wrap": 1}}]}, "wrap"),
        ({"hooks": [{"id": "a", "event": "error", "action": FETCH | {"params": []}}]}, "mapping"),
        (
            {"hooks": [{"id": "a", "event": "error", "action": FETCH, "condition": {"path": "x"}}]
             * 2},
            r"hooks\[1\]\.id is 'a', as of an earlier hook",
        ),
        (
            {"hooks": [{"id": "a", "event": "error", "action": FETCH, "condition": {"op": "eq"}}]},
            "path and op",
        ),
    ],
)  # fmt: skip
def test_a_file_of_hooks_that_cannot_be_is_refused_with_the_place(config, match):
    with pytest.raises(ConfigError, match=match) as refusal:
        read_hooks(Configuration.of("hooks.yaml", config), HookLayer.USER)
    assert "hooks.yaml" in str(refusal.value)
