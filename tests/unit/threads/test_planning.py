"""The steps of planning a directive's thread, each by itself; `plan` is tested through dry runs."""

from decimal import Decimal

import pytest

from ryecore import Limits
from ryecore.chain.trace import Trace
from ryecore.errors import ConfigError, ContentChanged, MetadataError, UntrustedKey
from ryecore.items.refs import ItemRef
from ryecore.lillux.keys import SigningKey
from ryecore.policy.hooks import HookLayer
from ryecore.policy.limits import DEFAULT_LIMITS
from ryecore.threads.planner.classification import DEFAULT_CLASSIFICATION
from ryecore.threads.planner.planning import DirectivePlanner, check_body
from ryecore.threads.planner.risk import DEFAULT_RISKS
from ryecore.threads.planner.settings import LoopConfig
from ryecore.wiring import Parts
from tests.unit.actions.directives import write

REF = ItemRef("directive", "acme/research")


@pytest.fixture
def planner(workspace):
    return planner_of(workspace)


def planner_of(workspace, **options) -> DirectivePlanner:
    parts = workspace.open(**options)._parts
    assert isinstance(parts, Parts)
    return parts.planner


def loaded_with(workspace, planner, **options):
    write(workspace, **options)
    return planner.load(REF, Trace())


# Step 3


def test_a_directive_is_read_once_and_again_when_it_was_changed_or_shadowed(workspace, planner):
    write(workspace, space="user", body="Of the user's.")
    first = planner.load(REF, Trace())
    assert planner.load(REF, Trace()) is first
    write(workspace, body="Of the project's.")
    assert planner.load(REF, Trace()).directive.body == "Of the project's."
    path = write(workspace, body="Another.")
    assert planner.load(REF, Trace()).directive.body == "Another."
    path.unlink()
    assert planner.load(REF, Trace()).directive.body == "Of the user's."


def test_what_is_remembered_is_verified_again(workspace, planner):
    path = write(workspace)
    planner.load(REF, Trace())
    path.write_text(path.read_text().replace("Research", "Delete"))
    with pytest.raises(ContentChanged):
        planner.load(REF, Trace())


def test_a_key_that_no_longer_counts_is_noticed(workspace, planner):
    write(workspace)
    planner.load(REF, Trace())
    for key in workspace.path("config/keys/trusted", "user").glob("*.toml"):
        key.unlink()
    with pytest.raises(UntrustedKey):
        planner.load(REF, Trace())


def test_inputs_are_checked_and_their_values_kept_out_of_the_trace(workspace, planner):
    loaded, log = loaded_with(workspace, planner), Trace()
    assert planner.inputs(loaded, {"topic": "hunter2"}, log) == {"topic": "hunter2", "n": 3}
    assert "hunter2" not in str(log.events)


def test_a_directive_without_instructions_cannot_be_run(workspace, planner):
    with pytest.raises(MetadataError, match="no instructions"):
        check_body(loaded_with(workspace, planner, body=""))


# Steps 4 and 5


def test_the_first_hook_that_matches_decides_what_is_extended(workspace, planner):
    reroute = '<hook id="{}" event="resolve_extends">{}<action set_extends="base/{}"/></hook>'
    own = reroute.format("own", '<condition path="inputs.topic" value="web"/>', "web")
    loaded = loaded_with(workspace, planner, metadata=f"<hooks>{own}</hooks>", extends="base/plain")
    workspace.write(
        "config/agent/hooks.yaml",
        "hooks: [{id: p, event: resolve_extends, condition: {path: model, value: a/b},"
        " action: {set_extends: base/project}}]\n",
    )
    configured = planner.hooks(Trace())

    def extends(topic, model):
        return planner.extends(loaded, {"topic": topic}, model, configured)

    assert extends("web", "a/b") == "base/web"  # layer 1 before layer 3
    assert extends("sea", "a/b") == "base/project"
    assert extends("sea", None) == "base/plain"


def test_a_directive_and_its_ancestors_become_one(workspace, planner):
    hook = '<hooks><hook id="{}" event="error"><action control="retry"/></hook></hooks>'
    write(
        workspace, "base/root",
        metadata=f"<permissions><fetch>*</fetch></permissions>{hook.format('root')}"
        "<context><system>base/tone</system></context>",
    )  # fmt: skip
    loaded = loaded_with(workspace, planner, metadata=hook.format("leaf"), extends="base/root")
    composed = planner.compose(loaded, "base/root", Trace())
    assert composed.extends == ("base/root",)
    assert composed.permissions.capabilities == ("rye.fetch.*",)
    assert [one.id for one in composed.hooks] == ["root", "leaf"]
    assert all(one.is_directives for one in composed.hooks)
    assert composed.context.system == ("base/tone",)
    assert planner.compose(loaded, None, Trace()).extends == ()


def test_a_directive_is_prepared_once_and_again_when_any_file_of_it_has_changed(workspace, planner):
    grants = "<permissions><fetch>{}</fetch></permissions>"
    path = write(workspace, "base/root", metadata=grants.format("*"))
    loaded = loaded_with(workspace, planner, extends="base/root")

    def prepare():
        settings = planner.settings(Trace())
        return planner.prepare(planner.load(REF, Trace()), "base/root", settings, Trace())

    first = prepare()
    assert prepare() is first
    assert (first.risks.allowed, first.hooks["error"]) == (("rye.fetch.*",), ())
    write(workspace, "base/root", metadata=grants.format("<tool>x</tool>"))
    second = prepare()
    assert second.risks.allowed != first.risks.allowed
    configured = "hooks: [{id: p, event: error, action: {control: retry}}]\n"
    workspace.write("config/agent/hooks.yaml", configured)
    third = prepare()
    assert [one.id for one in third.hooks["error"]] == ["p"]
    write(workspace, extends="base/root", metadata='<limits turns="3"/>')
    fourth = prepare()
    assert (third.limits.limits.turns, fourth.limits.limits.turns) == (DEFAULT_LIMITS.turns, 3)
    path.write_text(path.read_text().replace(">x<", ">y<"))
    with pytest.raises(ContentChanged):
        planner.prepare(loaded, "base/root", planner.settings(Trace()), Trace())


# Step 7


def test_limits_say_whether_spend_and_tokens_were_asked_for(workspace, planner):
    workspace.write(
        "config/agent/resilience.yaml", "limits: {spend: 2, max_tokens: 100, turns: 9}\n"
    )

    def layered(declared, overrides):
        found = planner.limits(declared, overrides, Trace())
        return found.limits, found.declares_spend, found.declares_tokens

    configured = Limits(9, 100, 2, 50, 10, 1800)
    assert layered(Limits(), Limits()) == (configured, False, False)
    limits, spend, tokens = layered(Limits(spend_usd="0.5", turns=8), Limits(tokens=7))
    assert (limits.spend_usd, limits.turns, limits.tokens) == (Decimal("0.5"), 8, 7)
    assert (spend, tokens) == (True, True)
    assert layered(Limits(spend_usd=0), Limits())[1] is True


# Configuration


def test_what_ships_says_what_the_code_says(planner):
    """The sealed files of the system bundle, against the defaults that hold without them."""
    log = Trace()
    settings = planner.settings(log)
    assert settings.limits == DEFAULT_LIMITS
    assert settings.risks == DEFAULT_RISKS
    assert settings.classification == DEFAULT_CLASSIFICATION
    assert settings.hooks == ()
    assert settings.loop == LoopConfig()
    read = [event["path"] for event in log.events]
    assert [str(one).removeprefix("agent/") for one in read] == [
        "hook_conditions.yaml", "resilience.yaml", "resilience.yaml", "capability_risk.yaml",
        "error_classification.yaml",
    ]  # fmt: skip


def test_a_project_changes_single_values(workspace, planner):
    workspace.write(
        "config/agent/capability_risk.yaml", "patterns: {rye.execute.tool.acme.*: safe}\n"
    )
    workspace.write("config/agent/error_classification.yaml", "max_consecutive_errors: 5\n")
    assert planner.settings(Trace()).risks == {**DEFAULT_RISKS, "rye.execute.tool.acme.*": "safe"}
    found = planner.settings(Trace()).classification
    assert found.max_consecutive_errors == 5
    assert found.patterns == DEFAULT_CLASSIFICATION.patterns


def test_configuration_that_changes_counts_for_the_next_thread(workspace, planner):
    assert planner.limits(Limits(), Limits(), Trace()).limits.turns == 25
    workspace.write("config/agent/resilience.yaml", "limits: {turns: 3}\n")
    assert planner.limits(Limits(), Limits(), Trace()).limits.turns == 3
    assert planner.settings(Trace()).limits.turns == 3
    for text, problem in (
        ("limits: {turns: many}\n", "limits can't be used: turns is 'many'"),
        ("limit: {turns: 3}\n", "limit is unknown. Did you mean 'limits'"),
    ):
        workspace.write("config/agent/resilience.yaml", text)
        with pytest.raises(ConfigError, match=rf"resilience\.yaml, line 2: {problem}"):
            planner.limits(Limits(), Limits(), Trace())


def test_hooks_that_come_with_a_bundle_are_built_in_and_a_project_brings_none_of_those(workspace):
    hook = "hooks: [{{id: {}, event: error, action: {{control: fail}}}}]\n"
    workspace.write("config/agent/hook_conditions.yaml", hook.format("s"), space="system")
    workspace.write("config/agent/hook_conditions.yaml", hook.format("p"))
    workspace.write("config/agent/hooks.yaml", hook.format("u"), space="user")
    host = {
        "agent/hooks.yaml": {
            "hooks": [{"id": "h", "event": "error", "action": {"control": "fail"}}]
        }
    }
    found = planner_of(workspace, config=host).hooks(Trace())
    assert {one.id: one.layer for one in found} == {
        "u": HookLayer.USER, "h": HookLayer.USER, "s": HookLayer.BUILT_IN,
    }  # fmt: skip
    assert not any(one.is_directives for one in found)


def test_configuration_by_a_stranger_is_refused(workspace, planner):
    path = workspace.write("config/agent/capability_risk.yaml", 'patterns: {"rye.*": safe}\n')
    workspace.sign(path, key=SigningKey.generate())
    with pytest.raises(UntrustedKey):
        planner.settings(Trace())
