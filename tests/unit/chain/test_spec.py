"""What an element may declare."""

from datetime import date
from pathlib import Path

import pytest

from ryecore.chain.spec import VersionRange, read_spec
from ryecore.errors import MetadataError

PATH = Path("/p/.ai/tools/a.yaml")


def test_nothing_declared_is_no_executor():
    spec = read_spec({}, PATH)
    assert (spec.has_executor, spec.executor_id, spec.anchor) == (False, None, None)


def test_a_null_executor_is_a_declared_one():
    assert read_spec({"executor_id": None}, PATH).has_executor


def test_child_constraints_come_flat_or_by_child():
    flat = read_spec({"child_constraints": {"min_version": "1"}}, PATH).child_constraints
    by_child = read_spec({"child_constraints": {"a/b": {"max_version": "2"}}}, PATH)
    assert flat == {"": VersionRange(min_version="1")}
    assert by_child.child_constraints == {"a/b": VersionRange(max_version="2")}


def test_static_variables_are_text():
    declared = {"env_config": {"env": {"A": 1, "B": True, "C": "x", "D": 1.5}}}
    assert read_spec(declared, PATH).env.env == {"A": "1", "B": "true", "C": "x", "D": "1.5"}


@pytest.mark.parametrize(
    ("declared", "place"),
    [
        ({"executor_id": 3}, "executor_id"),
        ({"version": 1.0}, "version"),
        ({"env_config": {"interpreter": {"type": "magic", "var": "X"}}}, "type"),
        ({"env_config": {"interpreter": {"type": "local_binary", "var": "X"}}}, "interpreter"),
        ({"env_config": {"interpreter": {"type": "command", "var": "X"}}}, "interpreter"),
        (
            {"env_config": {"interpreter": {"type": "system_binary", "var": "A B", "binary": "x"}}},
            "var",
        ),
        ({"env_config": {"env": {"A": []}}}, "env.A"),
        ({"anchor": {"mode": "sometimes"}}, "anchor.mode"),
        ({"anchor": {"unknown": 1}}, "anchor"),
        ({"anchor": {"root": "/"}}, "anchor.root"),
        ({"verify_deps": {"enable": True}}, "verify_deps"),
        ({"config_resolve": {"path": "../../x.yaml"}}, "config_resolve"),
        ({"config_resolve": {"path": "/etc/passwd"}}, "config_resolve"),
        ({"config_resolve": {"path": "a/./b.yaml"}}, "config_resolve"),
        ({"config_resolve": {"path": "a.yaml", "mode": "merge"}}, "config_resolve"),
        ({"config": []}, "config"),
        ({"file_types": {"rb": "#"}}, "file_types"),
        ({"file_types": {".rb": "rem"}}, "file_types"),
    ],
)  # fmt: skip
def test_a_key_of_another_form_is_refused_with_its_place(declared, place):
    with pytest.raises(MetadataError) as refusal:
        read_spec(declared, PATH)
    assert place.split(".")[0] in refusal.value.message
    assert str(PATH) in refusal.value.message


def test_every_misdeclared_key_is_listed():
    with pytest.raises(MetadataError) as refusal:
        read_spec({"executor_id": 3, "version": 1, "config": 2}, PATH)
    assert len(refusal.value.problems) == 3


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({1, 2}, "is a set, which JSON doesn't have"),
        (date(2026, 1, 2), "is a date, which JSON doesn't have: put text in quotes"),
        (float("inf"), "must be a finite number"),
        (10**400, "is a number that is too large"),
        ("\ud800", "holds half a surrogate pair"),
        ({(1, 2): 3}, "must be text"),
        ([1, {"b": b"x"}], "is a bytes, which JSON doesn't have"),
    ],
    ids=["set", "date", "infinity", "large", "surrogate", "key", "nested"],
)
def test_a_value_that_json_can_not_hold_is_refused_with_its_line(value, reason):
    text = b"config:\n  fine: 1\n  a: x\n"
    with pytest.raises(MetadataError, match=reason) as refusal:
        read_spec({"config": {"fine": 1, "a": value}}, PATH, text)
    assert refusal.value.line == 3
    assert "config.a" in refusal.value.message


def test_keys_that_are_no_text_are_unknown_beside_others():
    with pytest.raises(MetadataError, match="can't be read") as refusal:
        read_spec({"anchor": {1: "x", "y": 2, None: 3}}, PATH)
    assert [one.place for one in refusal.value.problems] == [
        ("anchor", "1"), ("anchor", "null"), ("anchor", "y"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "place",
    [
        ("env_config", "env"),
        ("env_config", "interpreter", "modules"),
        ("anchor", "env_paths"),
        ("anchor", "default_files"),
        ("child_constraints",),
        ("inputs",),
        ("outputs",),
        ("file_types",),
        ("item_paths",),
    ],
)
@pytest.mark.parametrize(("key", "written"), [(1, "1"), (True, "true"), (None, "null")])
def test_a_key_that_is_not_text_is_refused_where_names_are_expected(place, key, written):
    values = {"child_constraints": {}, "env_paths": {}, "modules": "x", "env": "x"}
    declared = {key: values.get(place[-1], "#")}
    for part in reversed(place):
        declared = {part: declared}
        if part == "interpreter":
            declared[part] |= {"type": "own", "var": "X"}
    with pytest.raises(MetadataError) as refusal:
        read_spec(declared, PATH)
    problems = {one.place: one.message for one in refusal.value.problems}
    assert problems[*place, written] == f"must be text, not {written}"


def test_a_key_that_is_not_text_is_named_with_its_line():
    text = b"env_config:\n  env:\n    A: x\n    80: y\n"
    with pytest.raises(MetadataError) as refusal:
        read_spec({"env_config": {"env": {"A": "x", 80: "y"}}}, PATH, text)
    assert refusal.value.line == 4


def test_what_a_tool_configures_for_itself_keeps_its_keys():
    assert read_spec({"config": {"ports": {80: "http"}}}, PATH).config == {"ports": {80: "http"}}
