import json

import pytest

from ryecore.lillux import SchemaFailure, SchemaValidator

SCHEMA = {
    "type": "object",
    "required": ["path"],
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "items": {"type": "array", "items": {"properties": {"name": {"type": "string"}}}},
        "mode": {"enum": ["fast", "safe"]},
    },
    "additionalProperties": False,
}


def failures(schema: object, instance: object) -> dict[str, str]:
    found = SchemaValidator(json.dumps(schema)).failures(json.dumps(instance))
    assert all(isinstance(failure, SchemaFailure) for failure in found)
    return {failure.path: failure.message for failure in found}


def test_a_valid_instance_has_no_failures() -> None:
    instance = {"path": "a", "items": [{"name": "b"}], "mode": "fast"}
    assert failures(SCHEMA, instance) == {}


def test_every_failing_path_is_listed() -> None:
    instance = {"path": "", "items": [{}, {}, {"name": 7}], "mode": "odd", "extra": 1}
    assert failures(SCHEMA, instance) == {
        "": "Additional properties are not allowed ('extra' was unexpected)",
        "path": '"" is shorter than 1 character',
        "items[2].name": '7 is not of type "string"',
        "mode": '"odd" is not one of "fast" or "safe"',
    }
    assert failures(SCHEMA, {}) == {"": '"path" is a required property'}


@pytest.mark.parametrize("instance", ["x" * 100_000, list(range(10_000)), {"k" * 5000: 1}])
def test_messages_are_short(instance: object) -> None:
    for schema in ({"type": "null"}, {"enum": ["y" * 10_000]}, {"const": "z" * 10_000}, False):
        for message in failures(schema, instance).values():
            assert 0 < len(message) <= 300


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a": {"type": "nonsense"}}}, r"at properties\.a\.type"),
        ({"required": "path"}, "at required"),
        ({"pattern": "("}, "pattern"),
        (7, "at its root"),
        ({"$schema": "https://example.invalid/x"}, r"at \$schema"),
    ],
)
def test_an_invalid_schema_says_where(schema: object, place: str) -> None:
    with pytest.raises(ValueError, match=place):
        SchemaValidator(json.dumps(schema))


@pytest.mark.parametrize("uri", ["https://example.invalid/a", "file:///etc/passwd", "b.json"])
def test_a_reference_out_of_the_schema_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=uri):
        SchemaValidator(json.dumps({"items": {"$ref": uri}}))


def test_references_inside_are_followed_recursively() -> None:
    tree = {"properties": {"child": {"$ref": "#/$defs/tree"}}, "required": ["n"]}
    schema = {"$defs": {"tree": tree}, "$ref": "#/$defs/tree"}
    instance = {"n": 1, "child": {"n": 2, "child": {}}}
    assert list(failures(schema, instance)) == ["child.child"]


def test_a_reference_to_itself_does_not_hang() -> None:
    assert failures({"$ref": "#"}, {"a": 1}) == {}


def test_formats_only_annotate() -> None:
    assert failures({"format": "email"}, "no address") == {}


def test_other_drafts_are_known() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}
    assert list(failures(schema, [1])) == ["[0]"]


@pytest.mark.parametrize("text", ["", "{", "NaN"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="schema is not JSON"):
        SchemaValidator(text)
    with pytest.raises(ValueError, match="instance is not JSON"):
        SchemaValidator("true").failures(text)


def _bomb(link: str, inner: bool) -> str:
    """Nine levels, each of which refers to the next ten times."""
    defs: dict[str, object] = {"level9": {"type": "string"}}
    for level in range(9):
        reference: dict[str, object] = {"$ref": f"#/$defs/level{level + 1}"}
        part = {"properties": {"a": reference}} if inner else reference
        defs[f"level{level}"] = {link: [part] * 10}
    return json.dumps({"$ref": "#/$defs/level0", "$defs": defs})


@pytest.mark.parametrize("link", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("inner", [False, True])
def test_a_schema_that_its_references_multiply_is_refused(link: str, inner: bool) -> None:
    with pytest.raises(ValueError, match="refers to its own parts so often"):
        SchemaValidator(_bomb(link, inner))


def test_a_recursive_schema_is_none() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "type": "object"}
    assert SchemaValidator(json.dumps(tree)).failures('{"left": {"right": 5}}')
