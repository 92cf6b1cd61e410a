"""The tools' schemas are the documented parameters, and each call takes all of them."""

import pytest

from ryecore import calls
from ryecore.mcp_server.schemas import DESCRIPTIONS, INPUT_SCHEMAS

# docs/design/execute.md#parameters: name, type, whether required, default.
EXECUTE = [
    ("item_id", "string", True, None),
    ("project_path", "string", True, None),
    ("parameters", "object", False, {}),
    ("dry_run", "boolean", False, False),
    ("target", "string", False, "local"),
    ("thread", "string", False, "inline"),
    ("async", "boolean", False, False),
    ("model", "string", False, None),
    ("limit_overrides", "object", False, None),
]


def test_rye_execute_has_exactly_the_documented_parameters():
    schema = INPUT_SCHEMAS["rye_execute"]
    assert schema["type"] == "object"
    assert [
        (name, one["type"], name in schema["required"], one.get("default"))
        for name, one in schema["properties"].items()
    ] == EXECUTE
    assert set(schema) == {"type", "properties", "required"}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("rye_execute", frozenset(calls.EXECUTE_KEYWORDS)),
        ("rye_fetch", calls._FETCH_BY_ID | calls._FETCH_BY_QUERY),
        ("rye_sign", calls._SIGN),
    ],
)
def test_a_call_takes_every_parameter_of_its_schema(name, known):
    assert set(INPUT_SCHEMAS[name]["properties"]) <= known | {"item_id", "project_path"}


def test_every_tool_and_parameter_is_described():
    assert DESCRIPTIONS.keys() == INPUT_SCHEMAS.keys()
    for schema in INPUT_SCHEMAS.values():
        assert all(one["description"] for one in schema["properties"].values())
