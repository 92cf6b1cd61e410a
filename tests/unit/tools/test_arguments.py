"""What a model wrote, and what the host set."""

import json
import re
from datetime import date, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import anyio
import anyio.to_thread
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import ToolArgsInvalidError
from ryecore.tools import ToolContext, ToolDef, ToolLimits
from ryecore.tools.arguments import hide_config, parse_arguments
from tests.unit.tools.calls import called, refused

pytestmark = pytest.mark.anyio

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


async def fetch(url: str, token: str = "", depth: int = 1) -> dict[str, Any]:
    """Fetch."""
    return {"url": url, "token": token, "depth": depth}


async def anything(arguments: Any, ctx: ToolContext) -> object:
    return arguments


FREE = ToolDef(name="free", description="", parameters={}, run=anything)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_an_object_is_read_as_what_it_is(arguments: dict[str, Any]) -> None:
    assert parse_arguments("x", json.dumps(arguments), 10**6) == arguments
    assert parse_arguments("x", json.dumps(arguments, ensure_ascii=False), 10**6) == arguments


@given(st.text(max_size=40))
def test_any_text_is_an_object_or_an_error_of_the_ladder(text: str) -> None:
    try:
        found = parse_arguments("x", text, 10**6)
    except ToolArgsInvalidError:
        return
    assert type(found) is dict


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (" ", "n't JSON"),
        ("{", "n't JSON"),
        ("{} {}", "n't JSON"),
        ("{'a': 1}", "n't JSON"),
        ('{"a": NaN}', "JSON has no NaN"),
        ('{"a": -Infinity}', "n't JSON"),
        ('{"a": 1e999}', "n't JSON"),
        ('{"a": "\\ud800"}', "n't JSON"),
        ('{"a": "\ud800"}', "n't JSON"),
        ('{"a": ' + "9" * 5000 + "}", "n't JSON"),
        ("[1]", "not an object"),
        ("null", "not an object"),
        ('"{}"', "not an object"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "n't JSON|too deeply"),
        ("[" * 200_000, "n't JSON|too deeply"),
    ],
)
async def test_what_is_no_object_of_json_is_never_taken_for_one(text: str, said: str) -> None:
    error = await refused(ToolArgsInvalidError, FREE, text)

    assert len(error.failures) == 1
    assert len(str(error)) < 500
    assert re.search(said, str(error)), str(error)


@pytest.mark.parametrize("text", ["", "{}", " {} \n"])
async def test_no_arguments_are_no_arguments(text: str) -> None:
    assert (await called(FREE, text)).value == {}


async def test_what_counts_of_a_name_that_stands_twice_is_what_was_checked() -> None:
    error = await refused(ToolArgsInvalidError, fetch, '{"url": "x", "depth": 1, "depth": "x"}')
    assert error.failures[0].startswith("depth: ")
    done = await called(fetch, '{"url": "x", "depth": "x", "depth": 7}')
    assert done.value == {"url": "x", "token": "", "depth": 7}


async def test_arguments_that_are_too_large_are_not_parsed() -> None:
    limits = ToolLimits(max_argument_bytes=100)

    for text in ("[" * 101, '{"a": "' + "ü" * 50 + '"}'):
        error = await refused(ToolArgsInvalidError, FREE, text, limits=limits)
        assert "larger than 100 bytes" in str(error)
    assert (await called(FREE, '{"a": "' + "ü" * 45 + '"}', limits=limits)).value == {"a": "ü" * 45}
    assert "larger" in str(await refused(ToolArgsInvalidError, FREE, '{"a": "' + "x" * 20_000_000))


async def test_every_failing_path_is_listed() -> None:
    error = await refused(ToolArgsInvalidError, fetch, {"depth": "deep", "speed": 1})

    assert len(error.failures) == 3
    assert {one.partition(":")[0] for one in error.failures} >= {"depth"}
    assert '"url" is a required property' in str(error)
    assert "speed" in str(error)


async def test_a_format_is_checked_and_named_with_an_example() -> None:
    def due(on: date, at: datetime, order: UUID) -> str:
        """Say when it is due."""
        return f"{on.isoformat()} {at.isoformat()} {order}"

    given = {"on": "2026-02-28", "at": "2026-02-28T12:00:00Z", "order": str(UUID(int=7))}
    assert "2026-02-28T12:00:00+00:00" in str((await called(due, given)).value)
    wrong = {"on": "tomorrow", "at": "2026-02-28T12:00:00", "order": "7"}
    error = await refused(ToolArgsInvalidError, due, wrong)
    assert {one.partition(":")[0] for one in error.failures} == {"on", "at", "order"}
    assert "such as 2026-01-31" in str(error)


async def test_what_the_host_sets_wins_and_is_not_shown() -> None:
    tool = ToolDef.from_function(fetch, config={"token": "s3cret", "depth": 3})

    assert set(tool.spec.parameters["properties"]) == {"url"}
    assert tool.spec.parameters["required"] == ["url"]
    assert "s3cret" not in repr(tool)
    done = await called(tool, {"url": "x", "depth": 99, "token": "mine"})
    assert done.value == {"url": "x", "token": "s3cret", "depth": 3}
    assert set(ToolDef.from_function(fetch, config={"url": "x"}).spec.parameters) == {
        "type",
        "properties",
        "additionalProperties",
    }


async def test_what_the_host_set_stands_in_no_error() -> None:
    tool = ToolDef.from_function(fetch, config={"token": "s3cret"})
    either = ToolDef(
        name="either",
        description="",
        parameters={"properties": {"a": {}, "token": {}}, "maxProperties": 1},
        config={"token": "s3cret"},
        run=anything,
    )

    for one, arguments in ((tool, {"depth": "x"}), (either, {"a": 1})):
        error = await refused(ToolArgsInvalidError, one, arguments)
        assert "s3cret" not in f"{error} {error.failures} {error.facts}"
    assert "that the host sets" in str(error)


async def test_what_the_host_set_and_its_type_refuses_stands_in_no_fact_of_the_error() -> None:
    class Vault(Enum):
        OPEN = "open"

        @classmethod
        def _missing_(cls, value: object) -> None:
            raise ValueError(f"there is no vault {value}")

    async def look(vault: Vault) -> None: ...

    look.__annotations__["vault"] = Vault
    tool = ToolDef.from_function(look)
    strict = evolve(tool, parameters={"properties": {"vault": {}}}, config={"vault": "s3cret"})

    error = await refused(ToolArgsInvalidError, strict)

    assert "there is no vault" in str(error)
    assert "s3cret" not in f"{error} {error.failures} {error.facts}"


@pytest.mark.parametrize(
    "value",
    [
        "1e999",
        "-1e999",
        "9" * 4000,
        r'"\ud800"',
        '"\ud800"',
        "[" * 200 + "]" * 200,
        "[" * 980 + "]" * 980,
    ],
)
async def test_what_only_looks_like_json_is_the_models_mistake_where_the_host_set_something(
    value: str,
) -> None:
    tool = ToolDef(
        name="x",
        description="",
        parameters={"properties": {"a": {}, "token": {}}},
        config={"token": "s3cret"},
        run=anything,
    )

    error = await refused(ToolArgsInvalidError, tool, f'{{"a": {value}}}', events=[])

    assert "n't JSON" in str(error) or "nested too deeply" in str(error)


@pytest.mark.parametrize("token", [["s3cret"], object(), float("nan"), {"s3cret"}])
def test_what_the_host_sets_has_to_fit_at_once(token: object) -> None:
    with pytest.raises(ValueError, match="config of fetch doesn't fit its schema: token") as caught:
        ToolDef.from_function(fetch, config={"depth": 2, "token": token})
    assert "s3cret" not in str(caught.value)


async def test_a_tool_changes_nothing_of_what_the_host_set() -> None:
    async def pop(names: list[str]) -> str:
        return names.pop()

    tool = ToolDef.from_function(pop, config={"names": ["a", "b"]})

    assert [(await called(tool)).value for _ in range(2)] == ["b", "b"]


@given(st.dictionaries(st.text(), JSON, max_size=3), st.sets(st.text(max_size=2), max_size=3))
def test_a_hidden_property_is_in_no_part_of_the_shown_schema(
    properties: dict[str, Any], hidden: set[str]
) -> None:
    seen = hide_config(
        {"properties": properties, "required": sorted(properties)}, dict.fromkeys(hidden)
    )

    assert set(seen["properties"]) == set(properties) - hidden
    assert set(seen.get("required", ())) == set(properties) - hidden
    assert seen["type"] == "object"


async def test_arguments_whose_check_takes_too_long_are_refused() -> None:
    pattern = {"items": {"pattern": "(a?){1,1000}"}}
    tool = evolve(FREE, parameters={"type": "object", "properties": {"texts": pattern}})
    text = json.dumps({"texts": ["a" * 17_000] * 50})
    for one in (tool, evolve(tool, config={"other": 1})):
        error = await refused(ToolArgsInvalidError, one, text)
        assert "takes more than 5,000,000 steps" in str(error)


async def test_a_slow_check_of_arguments_ends_when_the_caller_is_cancelled() -> None:
    numbers = {"items": {"multipleOf": 1e-300}}
    tool = evolve(FREE, parameters={"type": "object", "properties": {"numbers": numbers}})
    text = json.dumps({"numbers": [1.7976931348623157e308] * 40_000})
    limiter = anyio.to_thread.current_default_thread_limiter()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(called, tool, text)
            while not limiter.borrowed_tokens:
                await anyio.sleep(0)
            scope.cancel()
    assert scope.cancelled_caught


def test_what_the_host_sets_is_refused_where_its_check_takes_too_long() -> None:
    text = {"type": "string", "pattern": "^(?:(?=.*z)a)*$"}
    with pytest.raises(ValueError, match="doesn't fit its schema: text"):
        evolve(
            FREE,
            parameters={"type": "object", "properties": {"text": text}},
            config={"text": "a" * 50_000},
        )
