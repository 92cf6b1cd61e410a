"""Directives executed inline."""

import json
import subprocess
import sys

import pytest

from ryecore import CallContext, CancelToken, Rye, SigningKey, rye_execute
from ryecore.actions.directive import DirectiveResult
from ryecore.errors import (
    BadSignature,
    CallCancelled,
    ContentChanged,
    InputError,
    InvalidInputs,
    MetadataError,
    UnsignedItem,
    UntrustedKey,
)
from tests.unit.actions.directives import plan, write
from tests.workspace import events


def test_its_directions_come_back_with_the_inputs_put_in(workspace):
    write(workspace)
    done = workspace.execute("directive:acme/research", {"topic": "tides"})
    assert isinstance(done, DirectiveResult)
    assert done.your_directions == done.data == "Research tides in 3 steps."
    assert done.inputs == {"topic": "tides", "n": 3}
    assert done.raise_for_status() is done
    document = done.to_dict()
    assert list(document) == ["status", "type", "item_id", "your_directions", "metadata"]
    assert json.loads(done.to_json()) == document
    assert (document["status"], document["type"]) == ("success", "directive")
    assert document["item_id"] == "directive:acme/research"


def test_it_is_shown_for_people_without_what_could_steer_a_terminal(workspace):
    write(workspace)
    done = workspace.execute("directive:acme/research", {"topic": "<b>\x1b[31m"})
    assert "✓ directive:acme/research" in str(done)
    assert "\x1b" not in str(done)
    assert "&lt;b&gt;" in done._repr_html_()
    assert "acme/research" in repr(done)


async def test_it_runs_on_both_event_loops_and_many_at_once(workspace, anyio_backend):
    import anyio

    write(workspace)
    found = []

    async def one(rye: Rye, number: int) -> None:
        done = await rye.execute("acme/research", {"topic": number})
        found.append(done.data)

    async with workspace.open() as rye, anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(one, rye, number)
    assert sorted(found) == sorted(f"Research {number} in 3 steps." for number in range(100))


@pytest.mark.parametrize(
    "value",
    ["{input:n}", "${inputs.n}", "{input:topic}", "]]>", "</directive>", "a\0b", "x" * 1_000_000],
    ids=lambda value: value[:12].replace("\0", "NUL"),
)
def test_a_hostile_value_is_put_in_as_it_is(workspace, value):
    write(workspace)
    done = workspace.execute("directive:acme/research", {"topic": value})
    assert done.data == f"Research {value} in 3 steps."


def test_missing_inputs_are_the_documented_error_object(workspace):
    both = '<input name="a" required="true"/><input name="b" required="true"/>'
    write(workspace, inside=f"<inputs>{both}</inputs>")
    with pytest.raises(InvalidInputs) as refusal:
        workspace.execute("directive:acme/research")
    document = refusal.value.to_dict()
    assert document["error"].startswith("Missing required inputs: a, b.")
    assert document["item_id"] == "directive:acme/research"
    assert document["declared_inputs"] == [
        {"name": "a", "type": "string", "required": True},
        {"name": "b", "type": "string", "required": True},
    ]


def test_no_signature_no_directions(workspace):
    write(workspace, sign=False)
    with pytest.raises(UnsignedItem, match="rye sign directive:acme/research"):
        workspace.execute("directive:acme/research", {"topic": "x"})


def test_a_changed_instruction_is_refused(workspace):
    path = write(workspace)
    path.write_text(path.read_text().replace("Research", "Delete"))
    with pytest.raises(ContentChanged, match="was changed"):
        workspace.execute("directive:acme/research", {"topic": "x"})


def test_a_change_is_noticed_between_two_calls_of_one_rye(workspace):
    path = write(workspace)
    with workspace.sync() as rye:
        assert rye.execute("directive:acme/research", {"topic": "x"}).success
        path.write_text(path.read_text() + "And more.\n")
        with pytest.raises(ContentChanged):
            rye.execute("directive:acme/research", {"topic": "x"})
        workspace.sign(path)
        assert "And more." in rye.execute("directive:acme/research", {"topic": "x"}).data


def test_a_moved_directive_is_refused(workspace):
    path = write(workspace)
    (path.parent / "other").mkdir()
    path.rename(path.parent / "other" / path.name)
    with pytest.raises(BadSignature, match="moved"):
        workspace.execute("directive:acme/other/research", {"topic": "x"})


def test_a_directive_of_a_stranger_is_refused(workspace):
    write(workspace, key=SigningKey.generate())
    with pytest.raises(UntrustedKey):
        workspace.execute("directive:acme/research", {"topic": "x"})


def test_dev_mode_lets_an_unsigned_one_pass_and_says_so(workspace):
    write(workspace, sign=False)
    workspace.environ["RYE_DEV_MODE"] = "1"
    with pytest.warns(UserWarning, match="RYE_DEV_MODE"):
        done = workspace.execute("directive:acme/research", {"topic": "x"})
    assert done.to_dict()["metadata"]["integrity"] == "unverified"


def test_a_file_with_carriage_returns_works(workspace):
    path = write(workspace)
    content = path.read_bytes().partition(b"\n")[2].replace(b"\n", b"\r\n")
    workspace.write("directives/acme/research.md", content)
    done = workspace.execute("directive:acme/research", {"topic": "x"})
    assert done.data == "Research x in 3 steps."


def test_the_category_is_the_folder(workspace):
    write(workspace, metadata="<category>acme</category>")
    assert workspace.execute("directive:acme/research", {"topic": "x"}).success
    write(workspace, metadata="<category>other</category>")
    with pytest.raises(MetadataError, match="declares the category 'other' and stands in 'acme'"):
        workspace.execute("directive:acme/research", {"topic": "x"})


def test_a_directive_without_instructions_is_refused_inline(workspace):
    write(workspace, body="")
    with pytest.raises(MetadataError, match="no instructions after its XML block"):
        workspace.execute("directive:acme/research", {"topic": "x"})
    assert plan(workspace)["status"] == "validation_passed"


def test_a_broken_directive_is_refused_with_its_line_and_item(workspace):
    write(workspace, inside="<inputs><inptu/></inputs>")
    with pytest.raises(MetadataError, match=r"research\.md, line 7: .*<inptu>") as refusal:
        workspace.execute("directive:acme/research")
    assert refusal.value.item_id == "directive:acme/research"


def test_the_capability_of_the_very_directive_is_needed(workspace):
    write(workspace)
    for granted, allowed in (
        ({"rye.execute.directive.acme.*"}, True),
        ({"rye.execute.tool.*"}, False),
        (set(), False),
    ):
        ctx = CallContext(capabilities=frozenset(granted))
        if allowed:
            assert workspace.execute("acme/research", {"topic": "x"}, ctx=ctx).success
        else:
            with pytest.raises(InputError, match=r"rye\.execute\.directive\.acme\.research"):
                workspace.execute("acme/research", {"topic": "x"}, ctx=ctx)


def test_the_trace_shows_each_step_and_no_value(workspace):
    write(workspace, space="user")
    write(workspace)
    done = workspace.execute("directive:acme/research", {"topic": "s3cret"}, trace=True)
    assert [event["step"] for event in done.trace] == [
        "resolve", "verify_integrity", "read_metadata", "inputs",
    ]  # fmt: skip
    assert events(done.trace, "resolve")[0]["shadowed"][0]["space"] == "user"
    assert events(done.trace, "inputs")[0]["defaults"] == ["n"]
    assert "s3cret" not in json.dumps(done.trace)


def test_a_failed_attempt_keeps_its_trace_which_ends_in_what_failed(workspace):
    write(workspace)
    with pytest.raises(InvalidInputs) as refusal:
        workspace.execute("directive:acme/research", trace=True)
    last = refusal.value.trace[-1]
    assert (last["step"], last["failed"]) == ("inputs", True)


def test_events_reach_the_callers_sink(workspace):
    write(workspace)
    seen = []
    ctx = CallContext(event_sink=seen.append)
    workspace.execute("directive:acme/research", {"topic": "x"}, ctx=ctx)
    assert [event["step"] for event in seen][-1] == "inputs"


def test_a_cancelled_caller_gets_no_directions(workspace):
    write(workspace)
    token = CancelToken()
    token.cancel()
    with pytest.raises(CallCancelled):
        workspace.execute("acme/research", {"topic": "x"}, ctx=CallContext(cancellation=token))


def test_after_the_callers_deadline_there_are_no_directions(workspace):
    write(workspace)
    with pytest.raises(InputError, match="deadline"):
        workspace.execute("acme/research", {"topic": "x"}, ctx=CallContext(deadline=0.0))


async def test_a_model_gets_a_plain_object_for_directions_and_refusals(
    workspace, monkeypatch, anyio_backend
):
    for name, value in (*workspace.environ.items(), ("USER_SPACE", str(workspace.user))):
        monkeypatch.setenv(name, value)
    write(workspace)
    done = await rye_execute("acme/research", str(workspace.project), {"topic": "x"})
    assert done["your_directions"] == "Research x in 3 steps."
    refused = await rye_execute("acme/research", str(workspace.project))
    assert (refused["status"], refused["error_type"]) == ("error", "invalid_inputs")
    assert refused["declared_inputs"][0]["name"] == "topic"
    forked = await rye_execute("acme/research", str(workspace.project), thread="fork")
    assert forked["error_type"] == "invalid_inputs"


def test_opening_a_rye_and_executing_a_tool_imports_no_directives_and_no_javascript(workspace):
    workspace.shell("acme/hello", "echo hello")
    program = (
        "import sys; from ryecore import SyncRye\n"
        f"project, user = {str(workspace.project)!r}, {str(workspace.user)!r}\n"
        "with SyncRye.open(project, user_space=user) as rye:\n"
        "    rye.execute('tool:acme/hello')\n"
        "unused = ('directives', 'xml', 'javascript')\n"
        "print([name for name in sys.modules if any(one in name for one in unused)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_its_inputs_have_a_schema_and_its_chain_is_said_not_to_be(workspace):
    write(workspace)
    with workspace.sync() as rye:
        schema = rye.schema("acme/research")
        assert schema["required"] == ["topic"]
        assert schema["properties"]["n"] == {"type": "integer", "default": 3}
        with pytest.raises(InputError, match="no chain"):
            rye.trace("directive:acme/research")
