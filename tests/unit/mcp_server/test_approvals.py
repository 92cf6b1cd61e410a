"""What a person at an MCP client is asked, before a model's words become what may run."""

from pathlib import Path

import pytest

from ryecore.actions.approval import file_to_approve
from ryecore.display.sanitize import is_visible
from ryecore.mcp_server.approvals import question
from ryecore.policy.permissions import ApprovalRequest


def asked(*contents: bytes, item_id: str = "tool:acme/x.py") -> str:
    files = tuple(
        file_to_approve(item_id, Path("/p/x.py"), "0" * 64, "unsigned", content)
        for content in contents
    )
    return question(ApprovalRequest("sign", "project", files, "call-1"))


def test_a_short_file_is_shown_whole_and_nothing_is_said_to_be_missing() -> None:
    text = asked(b"print('high tide')\n")
    assert "  | print('high tide')" in text
    assert "NOT SHOWN" not in text


@pytest.mark.parametrize(
    ("content", "lines", "characters"),
    [
        (b"x = 1\n" * 40 + b"import os\n", 1, 10),
        (b"x = 1\n" * 1000, 960, 5760),
        (b"#" * 3999 + b"\nimport os\n", 1, 10),
        (b"#" * 10_000, 1, 10_000),
        (b"a\n" * 39 + b"#" * 10_000 + b"\nimport os", 2, 10_010),
    ],
)
def test_what_the_preview_leaves_out_is_counted(
    content: bytes, lines: int, characters: int
) -> None:
    assert f"NOT SHOWN: {lines} more lines with {characters} characters" in asked(content)


def test_what_many_files_leave_no_room_for_is_counted_too() -> None:
    text = asked(b"x = 1\n" * 40, b"y = 2\n" * 40, b"import os\n")
    assert text.count("  | ") == 60
    assert "NOT SHOWN: 20 more lines with 100 characters" in text
    assert "NOT SHOWN: 1 more lines with 9 characters" in text


def test_code_far_to_the_right_of_a_line_is_shown_below_it() -> None:
    text = asked(b"x = 1" + b" " * 500 + b"; import os\n")
    assert "import os" in text
    assert max(map(len, text.splitlines())) < 200


@pytest.mark.parametrize(
    "char",
    ["\n", "\r", "\x1b", "\u202e", "\u2066", "\u200b", "\u2028", "\u3164", "\U000e0100", '"'],
)
def test_neither_a_name_nor_a_line_of_the_file_can_forge_a_line_of_the_question(char: str) -> None:
    forged = "- tool:ok.py (signed, 3 bytes, sha256 00)"
    text = asked(f"# {char}{forged}\n".encode(), item_id=f"tool:x{char}{forged}")
    assert not [line for line in text.splitlines() if line.startswith(forged)]
    assert all(map(is_visible, text.replace("\n", "")))
    names = [line for line in text.split("\n") if line.startswith('- "')]
    assert len(names) == 1
