"""Headers of tools in languages that ryecore doesn't know."""

import time
from pathlib import Path

import pytest

from ryecore.errors import MetadataError
from ryecore.items.metadata import parse_metadata


@pytest.mark.parametrize("token", ["#", "//", "--", ";"])
def test_a_header_is_read_from_the_comment_of_any_language(token: str) -> None:
    source = "\n".join(
        (
            f"{token} rye:signed:2026-01-01T00:00:00Z:...",
            f'{token} __version__ = "1.0.0"',
            f'{token} __executor_id__ = "rye/core/runtimes/lua/lua"',
            f'{token} CONFIG_SCHEMA = {{"type": "object",',
            f'{token}                  "required": ["name"]}}',
            'print("--")',
            f'{token} __category__ = "behind the leading comment"',
        )
    )

    assert parse_metadata(source.encode(), Path("hello.lua")) == {
        "version": "1.0.0",
        "executor_id": "rye/core/runtimes/lua/lua",
        "config_schema": {"type": "object", "required": ["name"]},
    }


@pytest.mark.parametrize("line", ["'a':", "CONFIG_SCHEMA = {"])
def test_a_literal_that_never_ends_costs_no_more_than_a_moment(line: str) -> None:
    hostile = f"# CONFIG_SCHEMA = {{\n{f'# {line}{chr(10)}' * 30_000}"
    begun = time.process_time()
    with pytest.raises(MetadataError, match="too long for a comment"):
        parse_metadata(hostile.encode(), Path("a.sh"))
    assert time.process_time() - begun < 5
