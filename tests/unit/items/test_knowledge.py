"""Knowledge as it is read: without signature and metadata."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.items.knowledge import knowledge_text

FENCE = "```yaml\nname: tides\ntags: [sea]\n```\n"
SIGNED = f"<!-- rye:signed:2026-01-01T00:00:00Z:{'0' * 64}:abc:0123456789abcdef -->\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("The moon pulls.\n", "The moon pulls."),
        (f"{SIGNED}The moon pulls.\n", "The moon pulls."),
        (f"{SIGNED}# Tides\n\n{FENCE}\nThe moon pulls.\n", "# Tides\n\nThe moon pulls."),
        (f"{FENCE}The moon pulls.", "The moon pulls."),
        (f"{SIGNED}---\nname: tides\n---\nThe moon pulls.", "The moon pulls."),
        ("---\n---\nThe moon pulls.", "The moon pulls."),
        ("# rye:signed:x\nmoon: pulls\n", "moon: pulls"),
        (f"{SIGNED}# Tides\r\n\r\nThe moon\r\npulls.\r\n", "# Tides\n\nThe moon\npulls."),
        ("", ""),
    ],
)
def test_signature_and_metadata_are_left_out(content, text):
    assert knowledge_text(content) == text


@pytest.mark.parametrize(
    "content",
    [
        f"An example:\n\n{FENCE}",  # behind text it is content
        "# Ports\n\n```yaml\nports: [80]\n```",  # it declares nothing of an item
        "# Tides\n\n```python\nname: 3\n```",
        "---\nno end",
        "A line\n<!-- rye:signed:x -->",
    ],
)
def test_what_is_content_stays(content):
    assert knowledge_text(content) == content.strip()


@given(st.text(alphabet=st.sampled_from("`-\n#a: ~yml"), max_size=300))
def test_it_never_fails_and_adds_nothing(content):
    assert set(knowledge_text(content)) <= set(content) | {"\n"}
