import json
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ryecore.lillux import SchemaFailure, SchemaValidator
from ryecore.lillux.schema import MAX_SCHEMA_CHARS, MAX_STEPS, UNDECIDED

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


def test_a_failure_is_a_short_text_whatever_its_place_is_called() -> None:
    validator = SchemaValidator(json.dumps({"additionalProperties": {"type": "string"}}))
    short, long = (validator.failures(json.dumps({name: 1}))[0] for name in ("x", "x" * 100_000))
    assert str(short) == f"x: {short.message}"
    assert str(long).endswith(f"x…: {long.message}")
    assert len(str(long)) <= 302 + len(long.message)
    assert len(long.path) == 100_000


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


@pytest.mark.parametrize(
    ("name", "fits", "misfits", "says"),
    [
        ("date", "2026-02-28", "2026-02-30", 'is not a "date", such as 2026-01-31'),
        ("date-time", "2026-02-28T12:00:00Z", "2026-02-28T12:00:00", "12:00:00+01:00"),
        ("uuid", "5a1e2cb0-5c04-4b9b-8d2c-7d6e5e1d2a01", "5a1e", 'is not a "uuid"'),
        ("email", "ada@example.org", "no address", 'is not a "email"'),
        ("uri", "https://example.org", "example", 'is not a "uri", such as'),
    ],
)
def test_formats_are_checked(name: str, fits: str, misfits: str, says: str) -> None:
    assert failures({"format": name}, fits) == {}
    assert failures({"format": name}, 7) == {}
    assert says in failures({"format": name}, misfits)[""]


@pytest.mark.parametrize("name", ["password", "int64", "regex"])
def test_other_formats_only_annotate(name: str) -> None:
    assert failures({"format": name}, "((") == {}


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


@pytest.mark.parametrize("target", ["anchor", "dynamic", "id", "pointer through an id"])
def test_references_of_every_kind_are_counted(target: str) -> None:
    defs: dict[str, Any] = {}
    for level in range(9):
        reference, name = {
            "anchor": ({"$ref": f"#a{level + 1}"}, {"$anchor": f"a{level}"}),
            "dynamic": ({"$dynamicRef": f"#a{level + 1}"}, {"$dynamicAnchor": f"a{level}"}),
            "id": ({"$ref": f"x{level + 1}"}, {"$id": f"x{level}"}),
            "pointer through an id": (
                {"$ref": f"x{level + 1}#/$defs/in"},
                {"$id": f"x{level}"},
            ),
        }[target]
        fan: dict[str, Any] = {"allOf": [reference] * 10}
        defs[f"d{level}"] = {**name, "$defs": {"in": fan}, **fan}
    last = {"$anchor": "a9"} if target == "anchor" else {"$dynamicAnchor": "a9"}
    if "id" in target:
        last = {"$id": "x9"}
    defs["d9"] = {**last, "$defs": {"in": {}}}
    schema = {"$id": "https://example.invalid/s", "$defs": defs, "allOf": [{"$ref": "#/$defs/d0"}]}
    with pytest.raises(ValueError, match="refers to its own parts so often"):
        SchemaValidator(json.dumps(schema))


def test_a_schema_that_is_too_long_or_too_deep_is_refused() -> None:
    with pytest.raises(ValueError, match=f"more than {MAX_SCHEMA_CHARS:,} characters"):
        SchemaValidator(json.dumps({"description": "x" * MAX_SCHEMA_CHARS}))
    chain: dict[str, object] = {
        f"l{level}": {"$ref": f"#/$defs/l{level + 1}"} for level in range(100_000)
    }
    chain["l100000"] = True
    with pytest.raises(ValueError, match=r"has more than|nested too deeply"):
        SchemaValidator(json.dumps({"$defs": chain, "$ref": "#/$defs/l0"}))
    short = {name: chain[name] for name in list(chain)[:2000]} | {"l2000": True}
    with pytest.raises(ValueError, match="nested too deeply"):
        SchemaValidator(json.dumps({"$defs": short, "$ref": "#/$defs/l0"}))


def _deep(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


_LONG = "a" * 17_000
_HEAVY: dict[str, tuple[Any, str]] = {
    "one lookahead a character": ({"pattern": "^(?:(?=.*z)a)*$"}, json.dumps(_LONG)),
    "repetitions": ({"items": {"pattern": "(a?){1,1000}"}}, json.dumps([_LONG] * 200)),
    "names": ({"patternProperties": {"(a?){1,1000}": {}}}, json.dumps({_LONG * 20: 1})),
    "too many values": ({"items": {"type": "integer"}}, "[" + "0," * 3_000_000 + "0]"),
}


@pytest.mark.parametrize("case", _HEAVY)
def test_a_validation_that_takes_too_long_is_given_up(case: str) -> None:
    schema, instance = _HEAVY[case]
    assert SchemaValidator(json.dumps(schema)).failures(instance) == (UNDECIDED,)
    assert f"{MAX_STEPS:,} steps" in UNDECIDED.message


def test_failures_beyond_count_are_not_all_found() -> None:
    branches = [{"properties": {"a": {"$ref": "#"}}, "required": [name]} for name in "bcdefgh"]
    (one,) = SchemaValidator(json.dumps({"anyOf": branches})).failures(_deep(120))
    assert "more ways than can be listed" in one.message


@pytest.mark.parametrize("pattern", ["a{1000}{1000}", "((a{100}){100}){100}", "a" * 10_001])
def test_a_pattern_that_repeats_without_end_is_refused(pattern: str) -> None:
    for schema in ({"pattern": pattern}, {"patternProperties": {pattern: {}}}):
        with pytest.raises(ValueError, match="pattern"):
            SchemaValidator(json.dumps(schema))


def test_a_pattern_that_backtracks_fits_nothing() -> None:
    found = SchemaValidator(json.dumps({"pattern": r"^(a|a)*\1b$"})).failures(json.dumps("a" * 40))
    assert len(found) == 1


def test_unique_items_are_those_that_json_schema_calls_unique() -> None:
    validator = SchemaValidator('{"uniqueItems": true}')
    for same in ("[1, 1.0]", "[0, -0.0]", '[{"a": 1, "b": 2}, {"b": 2.0, "a": 1}]'):
        assert validator.failures(same), same
    others = '[1, true, "1", [1], [[1]], {"1": 1}, null, "null", 1e300, 18446744073709551615]'
    assert not validator.failures(others)
    # Elements such as these have one and the same hash in the crate.
    assert not validator.failures(json.dumps([2**63 + n for n in range(20_000)]))


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_the_event_loop_turns_while_a_validation_is_heavy() -> None:
    schema, instance = _HEAVY["repetitions"]
    items = SchemaValidator(json.dumps({**schema, "maxItems": 10_000_000}))
    beats = 0
    done = anyio.Event()

    async def validate() -> None:
        assert await items.failures_async("[" + "0," * 1_000_000 + "0]") == ()
        assert await items.failures_async(instance) == (UNDECIDED,)
        done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(validate)
        while not done.is_set():
            await anyio.sleep(0)
            beats += 1
    assert beats > 3


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_a_heavy_validation_can_be_given_up() -> None:
    validator = SchemaValidator(json.dumps({"items": {"multipleOf": 1e-300}}))
    instance = json.dumps([1.7976931348623157e308] * 400_000)
    limiter = anyio.to_thread.current_default_thread_limiter()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(validator.failures_async, instance)
            while not limiter.borrowed_tokens:
                await anyio.sleep(0)
            scope.cancel()
    assert scope.cancelled_caught
    # The thread is still there, and others are served beside it.
    assert await SchemaValidator("{}").failures_async("1") == ()


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_small_validations_stay_on_the_loop() -> None:
    validator = SchemaValidator(json.dumps(SCHEMA))
    with anyio.CancelScope() as scope:
        scope.cancel()  # whatever waited would end here
        assert await validator.failures_async('{"path": "a"}') == ()
        assert len(await validator.failures_async("{}")) == 1
