"""From what a tool returned to the result of an MCP tool."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from ryecore.errors import InputError
from ryecore.mcp_server.content import content_blocks, error_result, item_result, verb_result
from ryecore.mcp_server.resources import made_contents

JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=10,
)
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
LINK = {"type": "resource_link", "name": "log", "uri": "file:///log", "title": "The log"}


def of_item(data, version="2026-07-28", *, is_structured=False, both=False):
    done = item_result(data, is_structured=is_structured, protocol_version=version, both=both)
    return json.loads(done.model_dump_json(by_alias=True, exclude_none=True))


@given(data=JSON_LIKE, status=st.sampled_from(["success", "error"]))
def test_a_document_is_text_and_the_same_structure_where_both_are_wanted(data, status):
    result = verb_result({"status": status, "data": data}, both=True)
    wire = json.loads(result.model_dump_json(by_alias=True))
    assert json.loads(wire["content"][0]["text"]) == wire["structuredContent"]
    assert wire["isError"] == (status == "error")


def test_a_document_is_sent_once_by_default():
    result = verb_result({"status": "success"}, both=False)
    assert (result.content[0].text, result.structured_content) == ('{"status": "success"}', None)


def test_what_json_has_no_form_for_is_replaced():
    result = verb_result({"half": "\ud800", "nan": float("nan"), "path": object}, both=True)
    assert result.structured_content["half"] == "?"
    assert result.structured_content["nan"] is None


@pytest.mark.parametrize(
    ("data", "text"),
    [("high tide", "high tide"), ("half \ud800", "half ?"), ({"a": 1}, '{"a": 1}'), ([1], "[1]")],
)
def test_a_value_is_text_and_no_structure_where_no_schema_is_declared(data, text):
    done = of_item(data)
    assert [block["text"] for block in done["content"]] == [text]
    assert "structuredContent" not in done


def test_nothing_has_no_content():
    assert of_item(None)["content"] == []


@pytest.mark.parametrize(
    ("version", "is_structure"), [("2025-03-26", False), ("2025-06-18", True), ("2026-07-28", True)]
)
def test_a_declared_result_is_sent_once_as_the_protocol_can(version, is_structure):
    done = of_item({"a": 1}, version, is_structured=True)
    assert done.get("structuredContent") == ({"a": 1} if is_structure else None)
    assert [json.loads(one["text"]) for one in done["content"]] == (
        [] if is_structure else [{"a": 1}]
    )


def test_a_declared_result_that_is_no_object_is_structure_since_2026_alone():
    assert of_item([1], "2026-07-28", is_structured=True)["structuredContent"] == [1]
    done = of_item([1], "2025-11-25", is_structured=True)
    assert (done["content"][0]["text"], done.get("structuredContent")) == ("[1]", None)


def test_structure_is_text_too_where_both_are_wanted():
    done = of_item({"a": 1}, is_structured=True, both=True)
    assert json.loads(done["content"][0]["text"]) == done["structuredContent"] == {"a": 1}


def test_content_blocks_are_handed_on_once():
    done = of_item({"content": [IMAGE, LINK], "success": True})
    assert done["content"] == [IMAGE, LINK]
    assert "structuredContent" not in done


def test_an_older_client_reads_text_in_place_of_blocks_that_it_does_not_know():
    audio = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
    done = of_item({"content": [LINK, audio]}, "2024-11-05")
    assert [one["text"] for one in done["content"]] == [
        "The log: file:///log",
        "(audio: audio/wav)",
    ]


@pytest.mark.parametrize(
    "data",
    [
        {"content": "text"},
        {"content": []},
        {"content": [{"type": "picture"}]},
        {"content": [{"type": "image", "data": "aGk="}]},
        {"content": ["text"]},
        {"content": [IMAGE], "price": 5},
        [IMAGE],
    ],
)
def test_an_object_that_only_resembles_content_is_data(data):
    assert content_blocks(data) is None
    assert json.loads(of_item(data)["content"][0]["text"]) == data


def test_an_error_says_what_to_do_next():
    done = error_result(InputError("No such order.", next_step="Name another."))
    assert (done.is_error, done.content[0].text) == (True, "No such order.\nNext: Name another.")


def test_a_failure_keeps_the_content_that_it_came_with():
    done = error_result("It broke.", {"success": False, "content": [IMAGE]})
    assert [block.type for block in done.content] == ["text", "image"]


# What a tool returned as the contents of a resource


def made(data, mime_type=None):
    found = made_contents(data, "shop://a", mime_type)
    return [json.loads(one.model_dump_json(by_alias=True, exclude_none=True)) for one in found]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, []),
        ("hi", [{"uri": "shop://a", "mimeType": "text/plain", "text": "hi"}]),
        ([1], [{"uri": "shop://a", "mimeType": "application/json", "text": "[1]"}]),
        ({"content": [IMAGE]}, [{"uri": "shop://a", "mimeType": "image/png", "blob": "aGk="}]),
        (
            {"content": [{"type": "text", "text": "hi"}, LINK]},
            [{"uri": "shop://a", "mimeType": "text/plain", "text": "hi"}],
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "shop://b", "text": "b"}}]},
            [{"uri": "shop://b", "text": "b"}],
        ),
    ],
)
def test_what_a_tool_returned_is_the_contents_of_a_resource(data, expected):
    assert made(data) == expected


def test_a_declared_media_type_counts_and_broken_base64_is_an_error():
    assert made("<a/>", "application/xml")[0]["mimeType"] == "application/xml"
    with pytest.raises(MCPError, match="base64"):
        made({"content": [{"type": "image", "data": "?", "mimeType": "image/png"}]})
