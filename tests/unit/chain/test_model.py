"""The values that people see: results, chains, traces."""

import json
import pickle

import attrs
import pytest

from ryecore.errors import RyeError


@pytest.fixture
def done(workspace):
    return workspace.execute(workspace.shell("a/t", "echo hi"), trace=True)


def test_everything_a_person_gets_is_frozen(done):
    for value in (done, done.chain, done.chain.head):
        name = attrs.fields(type(value))[0].name
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, name, None)


def test_a_result_is_shown_with_its_status_its_data_and_its_chain(workspace, done):
    assert str(done).startswith("✓ tool:a/t  success")
    assert "a/t" in str(done.chain)
    with workspace.sync() as rye:
        traced = rye.trace("tool:a/t")
    assert "resolve" in str(traced)
    for html in (done._repr_html_(), traced._repr_html_(), done.chain._repr_html_()):
        assert html.count("<svg ") == 1
        assert [element.item_id in html for element in done.chain.elements] == [True] * 3
    assert "hi" in done._repr_html_()
    assert "verify_integrity" in traced._repr_html_()


def test_what_a_tool_printed_is_text_in_a_notebook(workspace):
    printed = "<script>alert(1)</script>\\033[31m\\342\\200\\256" + "x" * 3000
    done = workspace.execute(workspace.shell("a/t", f"printf '{printed}'"))
    html = done._repr_html_()
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert "x" * 1000 not in html


def test_to_json_is_to_dict(done):
    assert json.loads(done.to_json()) == json.loads(json.dumps(done.to_dict()))
    assert json.loads(done.to_json(indent=2)) == json.loads(done.to_json())


def test_a_chain_knows_whether_it_is_verified(done):
    assert done.chain.is_verified
    assert done.chain.head.integrity == done.to_dict()["chain_elements"][0]["integrity"]
    assert done.chain.elements[-1].integrity == "built-in"


def test_the_repr_of_an_element_shows_no_content(workspace, done):
    assert "echo hi" not in repr(done.chain)


def test_a_refusal_survives_pickling(workspace):
    with pytest.raises(RyeError) as refusal:
        workspace.execute("tool:a/nowhere", trace=True)
    copied = pickle.loads(pickle.dumps(refusal.value))
    assert type(copied) is type(refusal.value)
    assert copied.to_dict() == refusal.value.to_dict()


def test_a_repr_is_one_short_line(workspace):
    ref = workspace.shell("a/long", "printf '%200s' x")
    done = workspace.execute(ref, trace=True)
    with workspace.sync() as rye:
        traced = rye.trace(ref)
    for shown in (done, done.chain, done.chain.head, traced):
        assert len(repr(shown)) < 160
        assert "\n" not in repr(shown)
        assert "a/long" in repr(shown)
