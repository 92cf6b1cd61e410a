"""Layered configuration."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.chain.config import deep_merge, must_be_signed
from ryecore.errors import ConfigError, ContentChanged, MetadataError, UnsignedItem
from tests.workspace import Workspace, events

TREES = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.none() | st.integers() | st.lists(st.integers(), max_size=2),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    ),
    max_size=3,
)


@given(TREES, TREES)
def test_merging_changes_neither_layer_and_the_upper_ones_leaves_win(below, above):
    kept = copy.deepcopy((below, above))
    merged = deep_merge(below, above)
    assert (below, above) == kept
    for key, value in above.items():
        if not isinstance(value, dict):
            assert merged[key] == value
    for key, value in below.items():
        if key not in above:
            assert merged[key] == value


@given(TREES, TREES, TREES)
def test_merging_layer_by_layer_needs_no_brackets_where_mappings_meet_mappings(one, two, three):
    def mappings_only(tree):
        return {k: mappings_only(v) for k, v in tree.items() if isinstance(v, dict)}

    a, b, c = map(mappings_only, (one, two, three))
    assert deep_merge(deep_merge(a, b), c) == deep_merge(a, deep_merge(b, c))


@given(TREES)
def test_merging_with_nothing_changes_nothing(tree):
    assert deep_merge(tree, {}) == deep_merge({}, tree) == tree


def test_lists_and_null_replace():
    below = {"list": [1, 2], "map": {"a": 1, "b": 2}, "gone": {"x": 1}}
    above = {"list": [3], "map": {"b": 3}, "gone": None}
    assert deep_merge(below, above) == {"list": [3], "map": {"a": 1, "b": 3}, "gone": None}


def asking(workspace: Workspace, **wish: object) -> str:
    """A tool that shows the config that it was given."""
    wish = {"path": "web/search.yaml", **wish}
    return workspace.shell("a/asks", "cat", config_resolve=wish)


def given_to(workspace: Workspace, ref: str, **opened: object):
    return workspace.execute(ref, opened=opened).data["resolved_config"]


def layer(workspace: Workspace, space, values, **options):
    return workspace.write("config/web/search.yaml", values, space=space, **options)


def test_all_layers_are_merged_the_project_over_the_user_over_system(workspace):
    ref = asking(workspace)
    layer(workspace, "system", {"a": 1, "b": 1, "c": {"x": 1, "y": 1}})
    layer(workspace, "user", {"b": 2, "c": {"y": 2}})
    layer(workspace, "project", {"c": {"z": [3]}, "a": None})
    assert given_to(workspace, ref) == {"a": None, "b": 2, "c": {"x": 1, "y": 2, "z": [3]}}


def test_first_match_takes_the_nearest_layer_alone(workspace):
    ref = asking(workspace, mode="first_match")
    layer(workspace, "system", {"a": 1})
    layer(workspace, "user", {"b": 2})
    assert given_to(workspace, ref) == {"b": 2}
    layer(workspace, "project", {"c": 3})
    assert given_to(workspace, ref) == {"c": 3}


def test_the_host_is_the_last_layer_and_the_trace_says_so(workspace):
    ref = asking(workspace)
    layer(workspace, "project", {"a": 1, "b": 1})
    done = workspace.execute(ref, opened={"config": {"web/search.yaml": {"b": 2}}}, trace=True)
    assert done.data["resolved_config"] == {"a": 1, "b": 2}
    layers = events(done.trace, "resolve_config")[0]["layers"]
    assert [one["space"] for one in layers] == ["project", "host"]


def test_no_layer_at_all_is_an_empty_config(workspace):
    assert given_to(workspace, asking(workspace)) == {}


def test_a_tool_that_asks_for_nothing_is_given_nothing(workspace):
    layer(workspace, "project", {"a": 1})
    assert workspace.execute(workspace.shell("a/t", "cat")).data == {}


def test_a_list_of_files_gives_a_mapping_by_path(workspace):
    ref = workspace.shell(
        "a/asks", "cat", config_resolve=[{"path": "one.yaml"}, {"path": "sub/two.toml"}]
    )
    workspace.write("config/one.yaml", {"a": 1})
    workspace.write("config/sub/two.toml", "b = 2\n")
    assert given_to(workspace, ref) == {"one.yaml": {"a": 1}, "sub/two.toml": {"b": 2}}


def test_an_unsigned_layer_of_a_tools_own_config_is_taken_and_the_trace_shows_it(workspace):
    ref = asking(workspace)
    layer(workspace, "user", {"a": 1})
    layer(workspace, "project", {"b": 2}, sign=False)
    done = workspace.execute(ref, trace=True)
    assert done.data["resolved_config"] == {"a": 1, "b": 2}
    layers = events(done.trace, "resolve_config")[0]["layers"]
    assert [(one["space"], one["signed"]) for one in layers] == [("user", True), ("project", False)]


def test_an_unsigned_layer_is_refused_where_the_tool_asks_for_signed_ones(workspace):
    ref = asking(workspace, signed=True)
    path = layer(workspace, "project", {"a": 1}, sign=False)
    with pytest.raises(UnsignedItem, match=str(path)):
        workspace.execute(ref)


@pytest.mark.parametrize(
    "path",
    [
        "agent/agent.yaml", "agent/hooks.yaml", "agent//hooks.yaml", "agent/sub/x.toml",
        "execution/execution.yaml", "remotes/remotes.yaml", "mcp/servers.yaml", "providers/a.yaml",
        "capability_risk.yaml", "error_classification.yaml", "resilience.yaml", "hooks.yaml",
        "hooks.local.yaml", "mcp.json",
    ],
)  # fmt: skip
def test_what_can_execute_grant_spend_or_redirect_is_refused_unsigned_whoever_asks(workspace, path):
    assert must_be_signed(path)
    ref = asking(workspace, path=path)
    workspace.write(f"config/{path}", "{}\n", sign=False)
    with pytest.raises(UnsignedItem, match="rye sign config:"):
        workspace.execute(ref)


@pytest.mark.parametrize(
    "path", ["web/search.yaml", "agents/a.yaml", "web/agent.yaml", "my_hooks.yaml"]
)
def test_what_is_only_called_alike_is_a_tools_own_data(path):
    assert not must_be_signed(path)


def test_an_unsigned_layer_in_system_space_is_refused(workspace):
    ref = asking(workspace)
    layer(workspace, "system", {"a": 1}, sign=False)
    with pytest.raises(UnsignedItem):
        workspace.execute(ref)


def test_a_signed_layer_that_was_changed_is_refused_even_where_unsigned_ones_are_taken(workspace):
    ref = asking(workspace)
    path = layer(workspace, "project", {"a": 1})
    path.write_text(path.read_text().replace(": 1", ": 2"))
    with pytest.raises(ContentChanged, match=str(path)):
        workspace.execute(ref)


def test_a_broken_layer_is_named_with_its_line(workspace):
    ref = asking(workspace)
    layer(workspace, "project", "a: 1\nb: [\n")
    with pytest.raises(MetadataError, match=r"search\.yaml, line \d"):
        workspace.execute(ref)


def test_a_layer_that_is_a_link_out_of_its_folder_is_refused(workspace, tmp_path):
    ref = asking(workspace)
    outside = tmp_path / "outside.yaml"
    outside.write_text("a: 1\n")
    path = workspace.path("config/web/search.yaml")
    path.parent.mkdir(parents=True)
    path.symlink_to(outside)
    with pytest.raises(ConfigError, match="leaves its folder"):
        workspace.execute(ref)


def test_values_that_json_lacks_arrive_as_text(workspace):
    ref = asking(workspace)
    layer(workspace, "project", "since: 2026-01-31\nat: 2026-01-31T10:00:00Z\n")
    config = given_to(workspace, ref)
    assert config["since"] == "2026-01-31"
    assert config["at"].startswith("2026-01-31")


def test_values_that_no_text_stands_for_are_refused_and_the_file_is_named(workspace):
    ref = asking(workspace)
    layer(workspace, "project", "limit: .inf\n")
    with pytest.raises(ConfigError, match=r"web/search\.yaml"):
        workspace.execute(ref)


def test_what_config_holds_is_never_expanded(workspace):
    ref = asking(workspace)
    layer(workspace, "project", {"a": "${HOME} {project_path}"})
    assert given_to(workspace, ref) == {"a": "${HOME} {project_path}"}


def test_a_caller_cannot_pass_resolved_config_itself(workspace):
    from ryecore.errors import InputError

    with pytest.raises(InputError, match="resolved_config"):
        workspace.execute(asking(workspace), {"resolved_config": {"a": 1}})


def test_resolved_config_is_added_after_the_parameters_were_checked(workspace):
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    ref = workspace.shell(
        "a/asks", "cat", config_resolve={"path": "web/search.yaml"}, config_schema=schema
    )
    layer(workspace, "project", {"a": 1})
    assert workspace.execute(ref).data == {"resolved_config": {"a": 1}}


def asked_by_both(workspace: Workspace, tools: object, runtimes: object) -> object:
    workspace.yaml(
        "a/runtime",
        config={"command": "/bin/cat", "input_data": "{params_json}"},
        **({"config_resolve": runtimes} if runtimes else {}),
    )
    declared = {"config_resolve": tools} if tools else {}
    return workspace.execute(workspace.shell("a/t", "", executor_id="a/runtime", **declared)).data


def test_a_runtimes_own_config_resolve_counts_and_the_tools_says_how_a_file_is_read(workspace):
    search, other = {"path": "web/search.yaml"}, {"path": "web/other.yaml"}
    layer(workspace, "user", {"a": 1, "b": 2})
    layer(workspace, "project", {"a": 3})
    workspace.write("config/web/other.yaml", {"c": 4})
    found = {"web/search.yaml": {"a": 3, "b": 2}}
    both = found | {"web/other.yaml": {"c": 4}}
    nearest = {**search, "mode": "first_match"}
    for tools, runtimes, expected in (
        (None, search, {"a": 3, "b": 2}),
        (None, [search], found),
        (nearest, search, {"a": 3}),
        (search, nearest, {"a": 3, "b": 2}),
        (search, other, both),
        ([search], other, both),
    ):
        assert asked_by_both(workspace, tools, runtimes) == {"resolved_config": expected}


def test_a_runtime_may_demand_that_its_tools_configuration_is_signed(workspace):
    workspace.write("config/web/search.yaml", {"a": 1}, sign=False)
    with pytest.raises(UnsignedItem):
        asked_by_both(workspace, {"path": "web/search.yaml"},
                      {"path": "web/search.yaml", "signed": True})  # fmt: skip


@pytest.mark.parametrize("broken", ["{ not: [", "a: 1\nb: !!python/x y\n"])
def test_the_first_match_looks_at_no_farther_layer(workspace, broken):
    ref = asking(workspace, mode="first_match", signed=True)
    path = workspace.write("config/web/search.yaml", broken, space="user", sign=False)
    layer(workspace, "project", {"a": 1})
    assert workspace.execute(ref).data == {"resolved_config": {"a": 1}}
    with workspace.sync() as rye:
        assert rye.execute(ref).success
        path.write_text("{ changed: [")
        assert rye.execute(ref).success
        workspace.path("config/web/search.yaml").unlink()
        with pytest.raises((UnsignedItem, MetadataError)):
            rye.execute(ref)


@pytest.mark.parametrize("wish", ["tool", "runtime", "caller"])
def test_execution_config_sets_a_tools_timeout_over_the_tool_and_under_the_caller(workspace, wish):
    workspace.write("config/execution/execution.yaml", {"tools": {"a/t": {"timeout": 11}}})
    ref = workspace.shell("a/t", "true", config={"timeout": 22})
    caller = {"timeout_s": 33} if wish == "caller" else {}
    plan = workspace.execute(ref, dry_run=True, **caller).plan
    assert plan.timeout_s == (33 if wish == "caller" else 11)
    other = workspace.shell("a/other", "true", config={"timeout": 22} if wish == "tool" else {})
    assert workspace.execute(other, dry_run=True).plan.timeout_s == (22 if wish == "tool" else 300)


def test_unsigned_execution_config_is_refused(workspace):
    workspace.write("config/execution/execution.yaml", {"tools": {}}, sign=False)
    with pytest.raises(UnsignedItem, match=r"execution\.yaml"):
        workspace.execute(workspace.shell("a/t", "true"))


def test_a_failing_layer_is_the_traces_last_event(workspace):
    ref = asking(workspace, signed=True)
    layer(workspace, "project", {"a": 1}, sign=False)
    with pytest.raises(UnsignedItem) as refusal:
        workspace.execute(ref, trace=True)
    last = refusal.value.trace[-1]
    assert (last["step"], last["path"], last["failed"]) == (
        "resolve_config",
        "web/search.yaml",
        True,
    )
    assert json.dumps(refusal.value.to_dict())
