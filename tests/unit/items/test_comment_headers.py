"""Headers of tools in languages that ryecore doesn't know."""

from pathlib import Path

import pytest

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
