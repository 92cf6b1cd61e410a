"""A chain as a picture: each element with what vouches for it, and what stands around it."""

import pytest

from ryecore.chain.picture import chain_picture
from ryecore.display import to_mermaid, to_svg
from tests.workspace import BASH, PRIMITIVE


def boxes(picture):
    return {box.label: box for box in picture.boxes}


def lines(picture):
    labels = {box.id: box.label for box in picture.boxes}
    return [(labels[one.start], one.kind, labels[one.end]) for one in picture.lines]


def traced(workspace, ref):
    with workspace.sync() as rye:
        return rye.trace(ref)


def test_a_tool_leads_to_its_runtime_and_that_to_the_primitive(workspace):
    trace = traced(workspace, workspace.shell("a/t", "echo hi", version="1.2.0"))
    picture = chain_picture(trace.chain.elements, trace.chain.links, trace.events)
    assert lines(picture) == [("a/t", "solid", BASH), (BASH, "solid", PRIMITIVE)]
    shown = boxes(picture)
    integrity = trace.chain.head.integrity
    assert shown["a/t"].details == (f"✓ verified {integrity[:12]}", "project, version 1.2.0")
    assert str(trace.chain.head.path) in shown["a/t"].tooltip
    assert shown[PRIMITIVE].details == ("built in",)


def test_what_an_item_shadows_is_drawn_below_it(workspace):
    workspace.shell("a/t", "echo system", space="user")
    trace = traced(workspace, workspace.shell("a/t", "echo project"))
    picture = chain_picture(trace.chain.elements, trace.chain.links, trace.events)
    assert ("a/t", "dashed", "t.sh") in lines(picture)
    shadowed = boxes(picture)["t.sh"]
    assert shadowed.details == ("shadowed, user",)
    assert shadowed.status == "skipped"
    assert str(workspace.path("tools/a/t.sh", "user")) in shadowed.tooltip


def test_the_files_that_a_tool_may_import_are_counted(workspace):
    workspace.write("tools/a/lib/helper.py", "def help(): ...\n")
    workspace.write("tools/a/lib/__init__.py", "")
    workspace.write("tools/a/pyproject.toml", "", sign=False)
    ref = workspace.python(
        "a/t", "from lib.helper import help\ndef execute(params, project): return {}"
    )
    trace = traced(workspace, ref)
    seal = next(event for event in trace.events if event["step"] == "seal")
    picture = chain_picture(trace.chain.elements, trace.chain.links, trace.events)
    assert ("a/t", "dashed", f"{seal['files']} files") in lines(picture)
    assert seal["files"] > 1


def test_an_unverified_element_stands_out(workspace):
    ref = workspace.shell("a/t", "echo hi")
    path = workspace.path("tools/a/t.sh")
    path.write_text("\n".join(path.read_text().splitlines()[1:]) + "\n")
    workspace.environ["RYE_DEV_MODE"] = "1"
    with pytest.warns(UserWarning, match="RYE_DEV_MODE"):
        done = workspace.execute(ref)
    assert not done.chain.is_verified
    assert (
        boxes(chain_picture(done.chain.elements, done.chain.links))["a/t"].details[0]
        == "⚠ unverified"
    )


@pytest.mark.parametrize(("script", "status"), [("echo hi", "completed"), ("exit 3", "failed")])
def test_a_result_draws_how_its_tool_ended(workspace, script, status):
    done = workspace.execute(workspace.shell("a/t", script))
    assert f'class="n {status}"' in done._repr_html_()


def test_a_dry_run_draws_no_end(workspace):
    done = workspace.execute(workspace.shell("a/t", "echo hi"), dry_run=True)
    assert 'class="n"' in done._repr_html_()
    assert 'class="n ' not in done._repr_html_()


def test_it_is_one_svg_and_one_flowchart(workspace):
    trace = traced(workspace, workspace.shell("a/t", "echo hi"))
    picture = chain_picture(trace.chain.elements, trace.chain.links, trace.events)
    assert to_svg(picture).startswith("<svg ")
    assert to_mermaid(picture).startswith("flowchart LR\n")
