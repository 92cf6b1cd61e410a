"""What a project offers to MCP clients, and the names that it has there."""

import re
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from ryecore.convert.config import Configuration
from ryecore.errors import ConfigError
from ryecore.mcp_server.catalog import unique_names
from ryecore.mcp_server.completion import completed, values_of
from ryecore.mcp_server.offer import Offer, check_origin, check_pattern, matches
from ryecore.mcp_server.paging import page_of


def read(**values: Any) -> Offer:
    return Configuration.of("mcp/serve.yaml", values).read(Offer)


def test_nothing_but_verbs_prompts_and_resources_is_offered_by_default():
    assert read() == Offer(verbs=True, tools=(), directives=("*",), knowledge=("*",))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"tool": []}, "Did you mean 'tools'"),
        ({"tools": ["directive:a"]}, "must be the id of a tool"),
        ({"directives": ["a b"]}, "must be the id of a directive"),
        ({"page_size": 0}, "from 1 to 1000"),
        ({"results": "twice"}, "once"),
        ({"allowed_origins": ["https://app.example/path"]}, "must be an origin"),
        ({"templates": [{"uri": "shop://orders", "tool": "a"}]}, "must be a URI with variables"),
        ({"templates": [{"uri": "shop://{a}", "tool": "../a"}]}, "must be the id of a tool"),
        ({"templates": [{"uri": "shop://{a}", "tool": "a", "mime_type": "x"}]}, "a media type"),
    ],
)
def test_a_broken_key_is_named(values: Any, problem: str):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        read(**values)


@pytest.mark.parametrize(
    "origin",
    ["https://app.example", "http://localhost:3000", "https://[::1]:8", "*", "vscode-webview://a"],
)
def test_an_origin_is_a_scheme_a_host_and_perhaps_a_port(origin: str):
    assert check_origin(origin) == origin


@pytest.mark.parametrize("origin", ["app.example", "https://", "https://a/", "https://a b", "", 5])
def test_what_is_no_origin_is_refused(origin: object):
    with pytest.raises(ValueError, match="must be an origin"):
        check_origin(origin)


@pytest.mark.parametrize(
    ("pattern", "item_id", "is_matched"),
    [
        ("acme/*", "acme/csv", True), ("acme/*", "acme/a/b", True), ("acme/*", "acme", False),
        ("tool:acme/csv", "acme/csv", True), ("*", "x", True), ("*/csv", "acme/csv", True),
        ("acme", "acme/csv", False),
    ],
)  # fmt: skip
def test_a_star_stands_for_any_text(pattern: str, item_id: str, is_matched: bool):
    assert matches([check_pattern(pattern, "tool")], item_id) is is_matched


def test_an_item_of_a_bundle_is_matched_only_by_a_pattern_that_begins_with_its_id():
    assert not matches(["*"], "rye/bash", is_system=True)
    assert matches(["rye/*"], "rye/bash", is_system=True)


def test_each_name_is_short_and_different_and_stays_as_it_is():
    ids = ["acme/csv", "acme__csv", "a" * 70, "a" * 71, "rye_execute"]
    names = unique_names(ids, ["rye_execute"])
    assert names[0].startswith("acme__csv_")
    assert len(set(names)) == len(ids)
    assert "rye_execute" not in names
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert unique_names(ids, ["rye_execute"]) == names
    assert unique_names(["acme/csv"]) == ["acme__csv"]


def test_pages_hold_every_entry_once():
    entries = {name: name.upper() for name in "abcde"}
    found, cursor = [], None
    while True:
        page, cursor = page_of(entries, cursor, 2)
        found += page.values()
        if cursor is None:
            break
    assert found == ["A", "B", "C", "D", "E"]
    with pytest.raises(MCPError, match="cursor"):
        page_of(entries, "é", 2)


def test_values_come_from_the_schema():
    assert values_of({"enum": ["a", 1, "b"]}) == ["a", "b"]
    assert values_of({"examples": ["a"]}) == ["a"]
    assert values_of({"const": "x"}) == ["x"]
    assert values_of({"type": "boolean"}) == ["true", "false"]
    assert values_of({"type": "string"}) == values_of(None) == []


def test_what_begins_with_the_text_comes_first_and_a_hundred_at_most():
    assert completed(["beta", "Alpha", "al"], "AL").values == ["Alpha", "al"]
    assert completed(["beta", "abe"], "be").values == ["beta", "abe"]
    many = completed(map(str, range(150)), "")
    assert (len(many.values), many.total, many.has_more) == (100, 150, True)
