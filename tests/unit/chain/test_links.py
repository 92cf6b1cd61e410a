"""Items that a runtime is given by their path: found, verified and sealed as the tool is."""

import pytest

from ryecore import CallContext
from ryecore.errors import ChainError, ContentChanged, InputError, InvalidItemId, ItemNotFound
from tests.workspace import Workspace, events


def runtime(workspace: Workspace, **declared: object) -> None:
    """A runtime that prints the file that the tool's config calls `notes`."""
    workspace.yaml(
        "acme/reader",
        item_paths={"notes_path": "notes"},
        config={"command": "/bin/cat", "args": ["{notes_path}"]},
        **declared,
    )


def tool(workspace: Workspace, notes: object = "acme/notes", **declared: object) -> str:
    config = declared.pop("config", {})
    return workspace.yaml(
        "acme/tool", executor_id="acme/reader", config={"notes": notes, **config}, **declared
    )


def test_the_runtime_reads_the_verified_bytes_of_the_named_item(workspace: Workspace):
    runtime(workspace)
    workspace.shell("acme/notes", "echo no tool runs here")
    done = workspace.execute(tool(workspace), trace=True)
    assert "echo no tool runs here" in done.data["stdout"]
    linked = done.to_dict()["linked_items"]
    assert [(one["placeholder"], one["item_id"]) for one in linked] == [
        ("notes_path", "acme/notes")
    ]
    assert "acme/notes" in [event["item_id"] for event in events(done.trace, "resolve")]
    assert str(workspace.path("tools")) not in str(events(done.trace, "plan"))


def test_it_is_shown_beside_the_chain(workspace: Workspace):
    runtime(workspace)
    workspace.shell("acme/notes", "")
    assert "with acme/notes  verified" in str(workspace.execute(tool(workspace)))


def test_a_change_to_it_is_noticed_at_once(workspace: Workspace):
    runtime(workspace)
    workspace.shell("acme/notes", "one")
    ref = tool(workspace)
    with workspace.sync() as rye:
        assert rye.execute(ref).success
        path = workspace.path("tools/acme/notes.sh")
        path.write_text(path.read_text().replace("\none", "\ntwo"))
        with pytest.raises(ContentChanged):
            rye.execute(ref)
        workspace.sign(path)
        assert "two" in rye.execute(ref).data["stdout"]


def test_it_shadows_as_any_item_does(workspace: Workspace):
    runtime(workspace)
    workspace.shell("acme/notes", "of the user", space="user")
    ref = tool(workspace)
    with workspace.sync() as rye:
        assert "of the user" in rye.execute(ref).data["stdout"]
        workspace.shell("acme/notes", "of the project")
        assert "of the project" in rye.execute(ref).data["stdout"]


def test_a_users_tool_is_not_given_a_projects_item(workspace: Workspace):
    workspace.yaml(
        "acme/reader",
        space="user",
        item_paths={"notes_path": "notes"},
        config={"command": "/bin/cat", "args": ["{notes_path}"]},
    )
    workspace.yaml(
        "acme/tool", space="user", executor_id="acme/reader", config={"notes": "acme/notes"}
    )
    workspace.shell("acme/notes", "")
    with pytest.raises((ItemNotFound, ChainError)):
        workspace.execute("tool:acme/tool")


@pytest.mark.parametrize("notes", [None, 7, ["acme/notes"]])
def test_a_name_that_is_none_says_so(workspace: Workspace, notes: object):
    runtime(workspace)
    with pytest.raises(ChainError, match="'notes'"):
        workspace.execute(tool(workspace, notes))


def test_a_name_that_leads_elsewhere_is_refused(workspace: Workspace):
    runtime(workspace)
    with pytest.raises(InvalidItemId):
        workspace.execute(tool(workspace, "../../etc/passwd"))


def test_a_parameter_does_not_name_it(workspace: Workspace):
    runtime(workspace)
    workspace.shell("acme/notes", "the signed one")
    workspace.shell("acme/other", "another one")
    done = workspace.execute(tool(workspace), {"notes": "acme/other", "notes_path": "/etc/passwd"})
    assert "the signed one" in done.data["stdout"]


def test_its_environment_comes_between_the_runtimes_and_the_tools(workspace: Workspace):
    workspace.yaml(
        "acme/reader",
        item_paths={"notes_path": "notes"},
        env_config={"env": {"A": "runtime", "B": "runtime", "C": "runtime"}},
        config={"command": "/bin/sh", "args": ["-c", "echo $A $B $C"]},
    )
    workspace.yaml("acme/notes", env_config={"env": {"B": "item", "C": "item"}})
    done = workspace.execute(tool(workspace, env_config={"env": {"C": "tool"}}))
    assert done.data["stdout"].strip() == "runtime item tool"


PINNED = {"pinned_by": {"config_key": "seal", "next_step": "Seal it: seal {notes}"}}


def test_what_is_not_pinned_is_not_run_for_a_model(workspace: Workspace):
    runtime(workspace, **PINNED)
    workspace.shell("acme/notes", "")
    model = CallContext(capabilities=frozenset({"rye.execute.*"}))
    with workspace.sync() as rye:
        ref = tool(workspace)
        assert rye.execute(ref).metadata["pinned"] is False
        with pytest.raises(InputError, match="Seal it: seal acme/notes"):
            rye.execute(ref, ctx=model)
        ref = tool(workspace, config={"seal": "x"})
        assert rye.execute(ref, ctx=model).metadata["pinned"] is True


def test_a_plan_says_what_its_process_is_kept_for(workspace: Workspace):
    workspace.yaml(
        "acme/reader",
        item_paths={"notes_path": "notes"},
        config={"command": "/bin/cat", "keep_warm": "{notes_path}"},
    )
    workspace.shell("acme/notes", "one")
    first = workspace.execute(tool(workspace), dry_run=True).plan
    workspace.shell("acme/notes", "two")
    second = workspace.execute(tool(workspace), dry_run=True).plan
    assert first.keep is not None
    assert first.keep != second.keep  # what is kept for the one is not taken for the other
    assert (
        workspace.execute(tool(workspace, config={"keep_warm": ""}), dry_run=True).plan.keep is None
    )
