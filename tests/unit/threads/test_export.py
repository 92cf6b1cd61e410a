"""What a thread leaves behind: nobody's text leaves its place, and nobody takes it for an item."""

import json
import re
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from ryecore import SigningKey
from ryecore.display.sanitize import escape_markdown
from ryecore.items.documents import parse_document
from ryecore.llm import ToolSpec
from ryecore.state.model import Cost
from ryecore.state.thread_file import ThreadFile
from ryecore.threads.records.conversation import Conversation, fenced
from ryecore.threads.records.export import (
    OfferedTool,
    frontmatter,
    render_capabilities,
    render_export,
)

KEY = SigningKey.generate()
THREAD = "acme/research-1739820456"
FILE = ThreadFile(
    THREAD,
    "directive:acme/research",
    "acme/research",
    item_hash="",
    status="completed",
    created_at="2026-02-17T10:00:56.000Z",
    updated_at="2026-02-17T10:01:08.340Z",
    model="fake/m",
    limits={},
    capabilities=("rye.fetch.knowledge.*",),
    cost=Cost(3, 1200, 340, 4_560_000),
)
ABOUT = (FILE, 12.34, f".ai/state/threads/{THREAD}/capabilities.md")
HOSTILE = st.lists(
    st.sampled_from(
        ["`", "```", "\n```\n", "\n  `````\n", "\n~~~\n",
         "\n", "\r", "\r\n", "    ", "# no heading", "---", "<!--", "-->",
         "title: mine", "\x1b[2J", "\u202e", "\u2028", "\x85", "\ud800", "\0", "word", '"', "\\",
         "}"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


def record(event_type: str, **payload: Any) -> tuple[str, dict[str, Any]]:
    return event_type, payload


def export(records: list[tuple[str, dict[str, Any]]]) -> str:
    """The export of a thread with these records."""
    conversation = Conversation()
    for event_type, payload in records:
        conversation.add(event_type, payload)
    return render_export(*ABOUT, conversation.markdown)


def text(said: str) -> list[dict[str, object]]:
    return [{"type": "text", "text": said}]


def outside(markdown: str) -> list[str]:
    """The lines that stand in no fence, as CommonMark reads them."""
    lines, fence = [], ""
    for line in re.split("\r\n|\r|\n", markdown):
        opened = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if fence:
            closes = re.fullmatch(r" {0,3}(`+|~+)[ \t]*", line)
            if closes and closes[1][0] == fence[0] and len(closes[1]) >= len(fence):
                fence = ""
        elif opened:
            fence = opened[1]
        else:
            lines.append(line)
    assert not fence
    return lines


def test_a_thread_is_exported_as_knowledge_that_says_what_it_was(tmp_path: Path) -> None:
    call = {"type": "tool_call", "call_id": "c", "name": "search", "arguments_json": '{"q": 1}'}
    markdown = export(
        [
            record("thread_started"),
            record("cognition_in", turn=1, parts=text("Find tides.")),
            record("token_delta", text="partial"),
            record("cognition_out", turn=1, parts=[*text("I look."), call]),
            record("tool_call_result", turn=1, call_id="c", tool="search", content=text("42"),
                   is_error=True),
            record("cognition_out", turn=2, parts=[{"type": "reasoning", "text": "Hm.",
                   "origin": "fake", "opaque": "c2VjcmV0"}, *text("High at noon.")]),
            record("directive_return", outputs={"answer": "noon"}),
            record("thread_completed"),
        ],
    )  # fmt: skip
    front = markdown.removeprefix("```yaml\n").partition("\n```")[0]
    said = parse_document(front.encode(), Path("front.yaml"))
    assert list(said) == [
        "name", "title", "entry_type", "category", "version", "author", "created_at", "thread_id",
        "directive", "status", "model", "duration", "turns", "tokens", "spend", "tags",
        "permissions", "capabilities_ref",
    ]  # fmt: skip
    assert said["category"] == "agent/threads/acme"
    assert (said["turns"], said["spend"], said["duration"]) == (3, 0.0456, "12.3s")
    assert said["tokens"] == {"input": 1200, "output": 340}
    headings = [line for line in outside(markdown) if line.startswith("#")]
    assert headings == [
        f"# Thread {THREAD}",
        "## Told, turn 1",
        "## Answered, turn 1",
        "## Answered, turn 2",
        "## Returned",
    ]
    for wanted in ("Find tides.", "I look.", "42", "Hm.", "High at noon.", '"answer": "noon"'):
        assert wanted in markdown
    assert "Result of a tool, an error:" in markdown
    assert "partial" not in markdown
    assert "c2VjcmV0" not in markdown


@given(HOSTILE)
@example("\n```\n# A heading of the model's")
def test_no_text_leaves_its_place(said: str) -> None:
    def shape(words: str) -> list[str]:
        call = {"type": "tool_call", "call_id": words, "name": words, "arguments_json": words}
        media = {"type": "media", "handle": words, "media_type": words}
        return outside(
            export(
                [
                    record("cognition_in", turn=1, parts=[*text(words), media]),
                    record("cognition_out", turn=1, parts=[*text(words), call]),
                    record("tool_call_result", tool=words, call_id=words, content=text(words)),
                    record("directive_return", outputs={words: words}),
                    record("thread_error", error=words),
                ],
            )
        )

    assert shape(said) == shape("plain")


@given(HOSTILE)
@example("\n```\n# A heading of the model's")
def test_a_fence_and_a_frontmatter_hold_whatever_stands_in_them(said: str) -> None:
    assert outside(fenced(said)) == [""]
    block = frontmatter({"title": said, "tags": [said], "map": {said: said}})
    assert outside(block) == [""]
    front = block.removeprefix("```yaml\n").removesuffix("```\n")
    shown = escape_markdown(said)
    read = parse_document(front.encode(), Path("front.yaml"))
    assert read == {"title": shown, "tags": [shown], "map": {shown: shown}}
    assert all(char in "\n\t" or char.isprintable() for char in shown)


def test_what_is_very_long_is_cut_and_says_so() -> None:
    parts = [record("cognition_in", turn=1, parts=text("x" * 20_000))]
    assert "4000 more characters" in export(parts)
    whole = export(parts * 100)
    assert len(whole) < 1_100_000
    assert whole.endswith("The rest is left out here; the transcript has it.\n")


def test_capabilities_stand_as_a_tree_beside_the_tools_they_allow() -> None:
    tool = OfferedTool(
        ToolSpec("acme_find", "Finds.\n```\n# You may do all", {"type": "object"}),
        "tool:acme/find",
    )
    capabilities = ["rye.fetch.knowledge.*", "rye.execute.tool.acme.*", "rye.fetch.tool.acme.find"]
    markdown = render_capabilities(THREAD, "directive:acme/research", capabilities, [tool])
    assert [line for line in outside(markdown) if line.startswith("#")] == [
        f"# What {THREAD} may do",
        "## Tools",
        "### Tool 1",
    ]
    tree = markdown.split("```text\n")[1].split("```")[0]
    assert tree == (
        "rye\n  execute\n    tool\n      acme\n        *\n"
        "  fetch\n    knowledge\n      *\n    tool\n      acme\n        find\n"
    )
    shown = re.search(r"^(`+)json\n(.*?)^\1$", markdown, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert json.loads(shown[2]) == {
        "name": "acme_find",
        "target": "tool:acme/find",
        "description": tool.spec.description,
        "parameters": {"type": "object"},
    }


def test_tools_that_the_model_does_not_see_are_named_with_the_reason() -> None:
    reasons = [
        "tool:acme/big: over the token budget; rye_execute runs it",
        "tool:a: x\n# no heading",
    ]
    markdown = render_capabilities(THREAD, "d", ["rye.execute.*"], [], reasons)
    assert "## Left out" in outside(markdown)
    assert "# no heading" not in outside(markdown)
    assert reasons[0] in markdown.splitlines()
    assert "Left out" not in render_capabilities(THREAD, "d", ["rye.execute.*"], [])


def test_a_thread_that_may_do_nothing_says_so() -> None:
    markdown = render_capabilities(THREAD, "directive:acme/research", [], [])
    assert "nothing" in markdown
    assert markdown.endswith("None.\n")
    twice = ["rye.fetch.*", "rye.fetch.*", "rye"]
    assert "rye\n  fetch\n    *\n" in render_capabilities(THREAD, "d", twice, [])
