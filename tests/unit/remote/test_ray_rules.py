"""The rules of Ray clusters: what is short, and what Ray is asked for."""

import sys

import pytest

from ryecore.errors import ConfigError, MissingExtra
from ryecore.remote.ray_rules import (
    Lacked,
    lacking,
    look_interval_s,
    ray_options,
    read_ray_address,
    read_resources,
    read_runner_name,
    runner_name,
)
from tests.graphs import adding
from tests.workspace import Workspace


@pytest.mark.parametrize(
    ("wanted", "nodes", "short"),
    [
        ({}, [{"CPU": 2}], None),
        ({}, [{"CPU": 0}], {"CPU": 0}),
        ({}, [], {"CPU": 0}),
        ({"GPU": 1}, [{"CPU": 8}, {"CPU": 1, "GPU": 1}], None),
        ({"GPU": 4}, [{"CPU": 8}, {"CPU": 1, "GPU": 1}], {"GPU": 0}),
        # Each is on some node, and no node has both.
        ({"GPU": 1, "disk": 1}, [{"CPU": 1, "GPU": 1}, {"CPU": 1, "disk": 1}], {"disk": 0}),
        ({"CPU": 0, "disk": 0.5}, [{"disk": 1}], None),
    ],
)
def test_what_no_node_has_is_short(
    wanted: dict[str, float], nodes: list[dict[str, float]], short: dict[str, float] | None
) -> None:
    assert lacking(read_resources(wanted), nodes) == short


def test_resources_become_the_options_that_ray_has_for_them() -> None:
    asked = read_resources({"GPU": 0.5, "memory": 1000, "a100": 1})
    assert ray_options(asked) == {
        "num_cpus": 1.0, "num_gpus": 0.5, "memory": 1000.0, "resources": {"a100": 1.0}
    }  # fmt: skip


def test_a_run_is_hopeless_once_each_look_within_its_patience_found_it_lacking() -> None:
    lacked = Lacked()
    assert lacked.longer_than(60, {"a", "b"}, 100.0) == ()
    assert lacked.longer_than(60, {"a"}, 155.0) == ()  # b's node has come back meanwhile
    assert lacked.longer_than(60, {"a", "b"}, 160.0) == ("a",)
    assert lacked.longer_than(60, {"b"}, 219.0) == ()
    assert lacked.longer_than(60, {"b"}, 220.0) == ("b",)


def test_without_patience_the_first_look_decides() -> None:
    assert Lacked().longer_than(0, {"a"}, 1.0) == ("a",)


@pytest.mark.parametrize(("patience_s", "every_s"), [(0, 0.5), (1, 1), (60, 5)])
def test_the_cluster_is_looked_at_often_enough(patience_s: float, every_s: float) -> None:
    assert look_interval_s(patience_s) == every_s


@pytest.mark.parametrize("wanted", [{}, {"GPU": 0.5, "memory": 64_000_000_000, "a:b.c-d": 1}])
def test_the_name_of_an_actor_tells_what_its_run_takes(wanted: dict[str, float]) -> None:
    resources = read_resources(wanted)
    assert read_runner_name(runner_name("id", resources)) == ("id", resources)


@pytest.mark.parametrize("text", ["auto", "ray://head:10001", "ray://[::1]:10001"])
def test_an_address_is_auto_or_that_of_rays_client(text: str) -> None:
    assert read_ray_address(text) == text


@pytest.mark.parametrize("text", ["", "head:6379", "ray://head", "ray://a b:1", "local", None])
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="auto"):
        read_ray_address(text)


def test_a_cluster_needs_its_extra(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.split(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ryecore.remote.ray_cluster", raising=False)
    workspace.write("config/remotes/remotes.yaml", {"remotes": {"gpu": {"ray": "auto"}}})
    ref = workspace.shell("acme/tell", "echo hello")

    with pytest.raises(MissingExtra, match="package ray") as missing:
        workspace.execute(ref, target="remote:gpu")

    assert missing.value.next_step == "pip install 'ryecore[ray]'"


def test_a_graph_needs_a_state_that_machines_share(workspace: Workspace) -> None:
    workspace.write("config/remotes/remotes.yaml", {"remotes": {"gpu": {"ray": "auto"}}})
    with pytest.raises(ConfigError, match="a state that machines share"):
        workspace.execute(adding(workspace), {"a": 1}, target="remote:gpu")
