"""Directives executed inline, and their dry runs."""

import json
from pathlib import Path

import pytest

from ryecore import CallContext, CancelToken, Rye, SigningKey
from ryecore.actions.directive import MAX_EXTENDS
from ryecore.actions.results import DirectiveResult
from ryecore.errors import (
    BadSignature,
    CallCancelled,
    ChainTooDeep,
    CircularDependency,
    ConfigError,
    ContentChanged,
    InputError,
    InvalidInputs,
    ItemNotFound,
    MetadataError,
    UnsignedItem,
    UntrustedKey,
)
from tests.house import House, events

TOPIC = """<inputs><input name="topic" required="true"/>
<input name="n" type="integer" default="3"/></inputs>"""


def write(
    house: House,
    item_id: str = "acme/research",
    inside: str = TOPIC,
    *,
    metadata: str = "",
    body: str = "Research {input:topic} in {input:n} steps.",
    extends: str = "",
    **options: object,
) -> Path:
    """Write a directive, and sign it."""
    name = item_id.rpartition("/")[2]
    root = f' extends="{extends}"' if extends else ""
    text = (
        f'# {name}\n\n```xml\n<directive name="{name}" version="1.0.0"{root}>\n'
        f"<metadata>{metadata}</metadata>\n{inside}\n</directive>\n```\n\n{body}\n"
    )
    return house.write(f"directives/{item_id}.md", text, **options)


def plan(house: House, item_id: str = "acme/research", **options: object):
    done = house.execute(f"directive:{item_id}", {"topic": "x"}, dry_run=True, **options)
    assert isinstance(done, DirectiveResult)
    return done.to_dict()


# Inline


def test_its_directions_come_back_with_the_inputs_put_in(house):
    write(house)
    done = house.execute("directive:acme/research", {"topic": "tides"})
    assert isinstance(done, DirectiveResult)
    assert done.your_directions == done.data == "Research tides in 3 steps."
    assert done.inputs == {"topic": "tides", "n": 3}
    assert done.raise_for_status() is done
    document = done.to_dict()
    assert list(document) == ["status", "type", "item_id", "your_directions", "metadata"]
    assert json.loads(done.to_json()) == document
    assert (document["status"], document["type"]) == ("success", "directive")
    assert document["item_id"] == "directive:acme/research"


def test_it_is_shown_for_people_without_what_could_steer_a_terminal(house):
    write(house)
    done = house.execute("directive:acme/research", {"topic": "<b>\x1b[31m"})
    assert "✓ directive:acme/research" in str(done)
    assert "\x1b" not in str(done)
    assert "&lt;b&gt;" in done._repr_html_()
    assert "acme/research" in repr(done)


async def test_it_runs_on_both_event_loops_and_many_at_once(house, anyio_backend):
    import anyio

    write(house)
    found = []

    async def one(rye: Rye, number: int) -> None:
        done = await rye.execute("acme/research", {"topic": number})
        found.append(done.data)

    async with house.open() as rye, anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(one, rye, number)
    assert sorted(found) == sorted(f"Research {number} in 3 steps." for number in range(100))


@pytest.mark.parametrize(
    "value",
    ["{input:n}", "${inputs.n}", "{input:topic}", "]]>", "</directive>", "a\0b", "x" * 1_000_000],
    ids=lambda value: value[:12].replace("\0", "NUL"),
)
def test_a_hostile_value_is_put_in_as_it_is(house, value):
    write(house)
    done = house.execute("directive:acme/research", {"topic": value})
    assert done.data == f"Research {value} in 3 steps."


def test_missing_inputs_are_seed_001s_error_object(house):
    both = '<input name="a" required="true"/><input name="b" required="true"/>'
    write(house, inside=f"<inputs>{both}</inputs>")
    with pytest.raises(InvalidInputs) as refusal:
        house.execute("directive:acme/research")
    document = refusal.value.to_dict()
    assert document["error"].startswith("Missing required inputs: a, b.")
    assert document["item_id"] == "directive:acme/research"
    assert document["declared_inputs"] == [
        {"name": "a", "type": "string", "required": True},
        {"name": "b", "type": "string", "required": True},
    ]


def test_no_signature_no_directions(house):
    write(house, sign=False)
    with pytest.raises(UnsignedItem, match="rye sign directive:acme/research"):
        house.execute("directive:acme/research", {"topic": "x"})


def test_a_changed_instruction_is_refused(house):
    path = write(house)
    path.write_text(path.read_text().replace("Research", "Delete"))
    with pytest.raises(ContentChanged, match="was changed"):
        house.execute("directive:acme/research", {"topic": "x"})


def test_a_change_is_noticed_between_two_calls_of_one_rye(house):
    path = write(house)
    with house.sync() as rye:
        assert rye.execute("directive:acme/research", {"topic": "x"}).success
        path.write_text(path.read_text() + "And more.\n")
        with pytest.raises(ContentChanged):
            rye.execute("directive:acme/research", {"topic": "x"})
        house.sign(path)
        assert "And more." in rye.execute("directive:acme/research", {"topic": "x"}).data


def test_a_moved_directive_is_refused(house):
    path = write(house)
    (path.parent / "other").mkdir()
    path.rename(path.parent / "other" / path.name)
    with pytest.raises(BadSignature, match="moved"):
        house.execute("directive:acme/other/research", {"topic": "x"})


def test_a_directive_of_a_stranger_is_refused(house):
    write(house, key=SigningKey.generate())
    with pytest.raises(UntrustedKey):
        house.execute("directive:acme/research", {"topic": "x"})


def test_dev_mode_lets_an_unsigned_one_pass_and_says_so(house):
    write(house, sign=False)
    house.environ["RYE_DEV_MODE"] = "1"
    with pytest.warns(UserWarning, match="RYE_DEV_MODE"):
        done = house.execute("directive:acme/research", {"topic": "x"})
    assert done.to_dict()["metadata"]["integrity"] == "unverified"


def test_a_file_with_carriage_returns_works(house):
    path = write(house)
    content = path.read_bytes().partition(b"\n")[2].replace(b"\n", b"\r\n")
    house.write("directives/acme/research.md", content)
    done = house.execute("directive:acme/research", {"topic": "x"})
    assert done.data == "Research x in 3 steps."


def test_the_category_is_the_folder(house):
    write(house, metadata="<category>acme</category>")
    assert house.execute("directive:acme/research", {"topic": "x"}).success
    write(house, metadata="<category>other</category>")
    with pytest.raises(MetadataError, match="declares the category 'other' and stands in 'acme'"):
        house.execute("directive:acme/research", {"topic": "x"})


def test_a_directive_without_instructions_is_refused_inline(house):
    write(house, body="")
    with pytest.raises(MetadataError, match="no instructions behind its XML block"):
        house.execute("directive:acme/research", {"topic": "x"})
    assert plan(house)["status"] == "validation_passed"


def test_a_broken_directive_is_refused_with_its_line_and_item(house):
    write(house, inside="<inputs><inptu/></inputs>")
    with pytest.raises(MetadataError, match=r"research\.md, line 7: .*<inptu>") as refusal:
        house.execute("directive:acme/research")
    assert refusal.value.item_id == "directive:acme/research"


def test_the_capability_of_the_very_directive_is_needed(house):
    write(house)
    for granted, allowed in (
        ({"rye.execute.directive.acme.*"}, True),
        ({"rye.execute.tool.*"}, False),
        (set(), False),
    ):
        ctx = CallContext(capabilities=frozenset(granted))
        if allowed:
            assert house.execute("acme/research", {"topic": "x"}, ctx=ctx).success
        else:
            with pytest.raises(InputError, match=r"rye\.execute\.directive\.acme\.research"):
                house.execute("acme/research", {"topic": "x"}, ctx=ctx)


def test_the_trace_shows_each_step_and_no_value(house):
    write(house, space="user")
    write(house)
    done = house.execute("directive:acme/research", {"topic": "s3cret"}, trace=True)
    assert [event["step"] for event in done.trace] == [
        "resolve", "verify_integrity", "read_metadata", "inputs",
    ]  # fmt: skip
    assert events(done.trace, "resolve")[0]["shadowed"][0]["space"] == "user"
    assert events(done.trace, "inputs")[0]["defaults"] == ["n"]
    assert "s3cret" not in json.dumps(done.trace)


def test_a_failed_attempt_keeps_its_trace_which_ends_in_what_failed(house):
    write(house)
    with pytest.raises(InvalidInputs) as refusal:
        house.execute("directive:acme/research", trace=True)
    last = refusal.value.trace[-1]
    assert (last["step"], last["failed"]) == ("inputs", True)


def test_events_reach_the_callers_sink(house):
    write(house)
    seen = []
    ctx = CallContext(event_sink=seen.append)
    house.execute("directive:acme/research", {"topic": "x"}, ctx=ctx)
    assert [event["step"] for event in seen][-1] == "inputs"


def test_a_cancelled_caller_gets_no_directions(house):
    write(house)
    token = CancelToken()
    token.cancel()
    with pytest.raises(CallCancelled):
        house.execute("acme/research", {"topic": "x"}, ctx=CallContext(cancellation=token))


def test_after_the_callers_deadline_there_are_no_directions(house):
    write(house)
    with pytest.raises(InputError, match="deadline"):
        house.execute("acme/research", {"topic": "x"}, ctx=CallContext(deadline=0.0))


def test_its_inputs_have_a_schema_and_its_chain_is_said_not_to_be(house):
    write(house)
    with house.sync() as rye:
        schema = rye.schema("acme/research")
        assert schema["required"] == ["topic"]
        assert schema["properties"]["n"] == {"type": "integer", "default": 3}
        with pytest.raises(InputError, match="no chain"):
            rye.trace("directive:acme/research")


# Models and limits


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
