"""--svg and --mermaid: a chain or a tree of threads as a file, or as text."""

import json

import pytest
from defusedxml.ElementTree import fromstring

from tests.workspace import BASH


@pytest.fixture
def ref(workspace):
    return workspace.shell("acme/report", "echo hello")


@pytest.fixture
def ended(workspace, run, ref):
    """The id of a thread that has ended."""
    thread_id = run("execute", ref, "--async", "--json").json["thread_id"]
    assert run("threads", "wait", thread_id).code == 0
    return thread_id


def test_a_chain_is_drawn_into_a_file(workspace, run, ref):
    done = run("trace", ref, "--svg", "chain.svg")
    assert (done.code, done.out) == (0, "drawn: chain.svg\n")
    root = fromstring((workspace.project / "chain.svg").read_bytes())
    texts = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "acme/report" in texts
    assert BASH in texts


def test_a_chain_can_be_piped(run, ref):
    svg = run("trace", ref, "--svg", "-")
    assert svg.code == 0
    assert fromstring(svg.out).tag.endswith("}svg")
    mermaid = run("trace", ref, "--mermaid")
    assert mermaid.out.startswith("flowchart LR\n")
    assert "n0 --> n1" in mermaid.out


@pytest.mark.parametrize("command", ["show", "tree"])
def test_a_thread_is_drawn_by_the_beginning_of_its_id(workspace, run, ended, command):
    assert run("threads", command, ended[:8], "--svg", "thread.svg").code == 0
    svg = (workspace.project / "thread.svg").read_text()
    assert ended in svg
    assert 'class="n completed"' in svg
    mermaid = run("threads", command, ended, "--mermaid").out
    assert "✓ tool:acme/report" in mermaid


def test_where_nothing_runs_the_picture_says_so(run):
    assert "nothing runs" in run("threads", "tree", "--svg", "-").out


@pytest.mark.parametrize("name", ["missing/chain.svg", ".", "", "a" * 300])
def test_a_file_that_can_not_be_written_is_said_in_words(run, ref, name):
    done = run("trace", ref, "--svg", name)
    assert done.code == 2
    assert "can't be written" in done.err
    assert "next:" in done.err


def test_a_full_disk_is_said_in_words(run, ref):
    done = run("trace", ref, "--svg", "/dev/full")
    assert done.code == 2
    assert "No space left on device" in done.err
    assert "Make room" in done.err


def test_one_form_is_named(run, ref):
    done = run("trace", ref, "--svg", "-", "--mermaid")
    assert done.code == 2
    assert "only one of" in done.err
    assert run("trace", ref, "--json", "--mermaid").code == 2


def test_an_unknown_thread_is_refused_as_ever(workspace, run):
    done = run("threads", "show", "nobody", "--svg", "thread.svg")
    assert done.code == 2
    assert not (workspace.project / "thread.svg").exists()


def test_without_them_everything_is_as_it_was(run, ref):
    assert "verify_integrity" in run("trace", ref).out
    assert json.loads(run("trace", ref, "--json").out)["status"] == "success"


def test_a_picture_is_not_written_through_a_link(workspace, run, ref):
    victim = workspace.root / "victim"
    victim.write_text("mine")
    for target in (victim, workspace.root / "new"):
        link = workspace.project / "chain.svg"
        link.symlink_to(target)
        done = run("trace", ref, "--svg", "chain.svg")
        assert done.code != 0
        assert "'chain.svg' can't be written: it is a link" in done.err
        link.unlink()
    assert victim.read_text() == "mine"
    assert not (workspace.root / "new").exists()
