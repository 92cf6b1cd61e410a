"""From a document to the result of an MCP tool."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ryecore.mcp_server.server import tool_result

JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=10,
)


@given(data=JSON_LIKE, status=st.sampled_from(["success", "error"]))
def test_text_and_structure_are_the_same_document_that_any_client_can_read(data, status):
    result = tool_result({"status": status, "data": data})
    wire = json.loads(result.model_dump_json(by_alias=True))
    assert json.loads(wire["content"][0]["text"]) == wire["structuredContent"]
    assert wire["isError"] == (status == "error")


def test_what_json_has_no_form_for_is_replaced():
    result = tool_result({"half": "\ud800", "nan": float("nan"), "path": object})
    assert result.structured_content["half"] == "?"
    assert result.structured_content["nan"] is None
