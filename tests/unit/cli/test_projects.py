"""`rye init` and `rye new`: from an empty folder to items that run."""

import json
import os

import pytest

from tests.unit.cli.conftest import Run
from tests.workspace import Workspace

HOSTILE = (
    'say "hi" `touch x` $(touch x) \\ """ </description> ]]> ${x}\n# __executor_id__ = "x"\u202e'
)


def test_an_empty_folder_becomes_a_project_and_says_what_comes_next(
    workspace: Workspace, run: Run
) -> None:
    done = run("init", "shop")
    assert done.code == 0
    assert sorted(os.listdir(workspace.project / "shop/.ai")) == [
        "config", "directives", "knowledge", "tools",
    ]  # fmt: skip
    assert "rye keys generate" not in done.out  # there is a key
    assert "rye new tool hello" in done.out
    assert run("init", "shop").code == 0


def test_whoever_has_no_key_is_told_to_make_one(workspace: Workspace, run: Run) -> None:
    away = {"USER_SPACE": str(workspace.root / "nobody")}
    assert run("init", "--json", **away).json["next_steps"][0] == "rye keys generate"
    assert run("new", "tool", "t", "--json", **away).json["next_steps"][1] == "rye keys generate"


@pytest.mark.parametrize("kind", ["tool", "tool:bash", "tool:javascript", "graph", "directive"])
def test_what_is_made_verifies_once_signed_and_runs(
    workspace: Workspace, run: Run, kind: str
) -> None:
    kind, _, language = kind.partition(":")
    options = ["--language", language] if language else []
    made = run("new", kind, "acme/sub/x", "--description", HOSTILE, *options, "--json")
    assert made.code == 0, made.err
    ref = made.json["item_id"]
    assert run("execute", ref).code == 2  # unsigned

    assert run("sign", ref).code == 0
    assert run("verify", ref).code == 0
    steps = made.json["next_steps"]
    assert steps[1] == f"rye sign {ref}"
    ran = run(*steps[-1].replace("TOPIC", "tides").split()[1:])
    assert ran.code == 0, ran.err
    if kind == "tool":
        assert "Hello, Ada B" in run("execute", ref, "name=Ada B").out  # the template reads it
    found = {one["id"]: one for one in run("search", "x", "--json").json["results"]}
    assert found[ref]["description"].startswith("say ")
    assert found[ref]["description"].isprintable()
    assert not (workspace.project / "x").exists()


def test_nothing_is_made_that_can_not_be_signed_as_it_was_asked_for(
    workspace: Workspace, run: Run
) -> None:
    workspace.keys.trust(workspace.key.public, "me", revoked=True)
    done = run("new", "tool", "x", "--sign")
    assert done.code == 2
    assert "was revoked" in done.err
    assert not workspace.path("tools").exists()


def test_knowledge_is_made_and_can_be_signed_at_once(workspace: Workspace, run: Run) -> None:
    made = run("new", "knowledge", "sea/tides", "--sign")
    assert made.code == 0
    assert "made and signed" in made.out
    assert run("verify", "knowledge:sea/tides").code == 0


@pytest.mark.parametrize("there", ["x.py", "x.sh", "x.tar.gz"])
def test_nothing_is_replaced_nor_made_ambiguous(workspace: Workspace, run: Run, there: str) -> None:
    path = workspace.write(f"tools/acme/{there}", "mine", sign=False)
    done = run("new", "tool", "acme/x")
    assert done.code == 2
    assert str(path) in done.err
    assert os.listdir(path.parent) == [there]
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["../x", "a/../x", "a/", "x.py", "tool:x", "/etc/x", "a b", ".x", "a//x", "x\n", ""]
)
def test_a_name_that_no_id_has_is_refused(workspace: Workspace, run: Run, name: str) -> None:
    for kind in ("tool", "graph"):
        done = run("new", kind, name)
        assert done.code == 2
        assert "is not an item id" in done.err
        assert "like 'acme/csv/summarise'" in done.err
        assert "^[" not in done.err  # no pattern of a schema
    assert not workspace.path("tools").exists()


@pytest.mark.parametrize("linked", ["", "tools", "tools/acme"])
def test_nothing_is_made_behind_a_link(workspace: Workspace, run: Run, linked: str) -> None:
    outside = workspace.root / "outside"
    outside.mkdir()
    place = workspace.project / ".ai" / linked if linked else workspace.project / ".ai"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside)
    assert run("new", "tool", "acme/x").code == 2
    assert run("init").code == (0 if linked == "tools/acme" else 2)
    assert os.listdir(outside) == []


def test_the_directive_of_the_seed_asks_for_name_and_category(
    workspace: Workspace, run: Run
) -> None:
    refused = run("execute", "directive:rye/core/create_directive", "--json")
    assert refused.code == 2
    assert [
        (one["name"], one["type"], one["required"], one.get("default"))
        for one in refused.json["declared_inputs"]
    ] == [
        ("name", "string", True, None),
        ("category", "string", True, None),
        ("description", "string", False, ""),
    ]
    for kind in ("directive", "tool", "graph"):
        item = f"directive:rye/core/create_{kind}"
        done = run("execute", item, "name=deploy_app", "category=workflows")
        assert done.code == 0
        assert "tool:rye/core/create" in done.out


def test_a_model_can_have_a_directive_made_with_its_instructions(
    workspace: Workspace, run: Run
) -> None:
    parameters = {
        "kind": "directive",
        "name": "greet",
        "category": "acme",
        "instructions": "Say {input:topic} `kindly`: {not} a placeholder.",
    }
    done = run("execute", "rye/core/create", "--params", json.dumps(parameters))
    assert done.code == 0
    assert run("sign", "directive:acme/greet").code == 0
    shown = run("execute", "directive:acme/greet", "topic=hello")
    assert shown.out.strip() == "Say hello `kindly`: {not} a placeholder."


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["--name", "Alice"], "name=Alice"),
        (["--name=Alice"], "name=Alice"),
        (["--first-name", "Ada B"], "'first_name=Ada B'"),
        (["--loud"], "loud=true"),
        (["--loud", "--timeout", "5"], "loud=true"),
    ],
)
def test_who_writes_a_parameter_with_dashes_is_told_how_it_is_written(
    workspace: Workspace, run: Run, written: list[str], meant: str
) -> None:
    done = run("execute", "acme/x", *written)
    assert done.code == 2
    assert f"A parameter is written {meant}, without dashes." in done.err


def test_a_misspelt_option_is_still_guessed(run: Run) -> None:
    assert "--timeout" in run("execute", "acme/x", "--timeot", "5").err
