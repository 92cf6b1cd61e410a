"""What an item says of itself, in each kind's own form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.items.description import ItemDescription, describe, knowledge_text
from ryecore.items.refs import KIND_FOLDERS
from tests.timing import at_most_cpu

SIGNED = "<!-- rye:signed:whatever -->\n"


@pytest.mark.parametrize(
    ("kind", "relative", "text", "expected"),
    [
        (
            "tool",
            "acme/csv/sum.py",
            '__version__ = "1.2.0"\n__tool_description__ = "Adds  rows."\n',
            ItemDescription("sum", "sum", "Adds rows.", "acme/csv", (), "1.2.0"),
        ),
        ("tool", "t.sh", '# __description__ = "x"\n', ItemDescription("t", "t", "x")),
        ("tool", "a/t.py", "this is no Python", ItemDescription("t", "t", "", "a")),
        (
            "directive",
            "a/plan.md",
            SIGNED + '# Plan a trip #\n\n```xml\n<directive name="plan" version="2.0">\n<metadata>'
            "<description>Plans &lt;well&gt;\n always.</description>\n",
            ItemDescription("plan", "Plan a trip", "Plans <well> always.", "a", (), "2.0"),
        ),
        ("directive", "d.md", "no heading", ItemDescription("d", "d")),
        ("directive", "d.md", "<directive><description>open", ItemDescription("d", "d")),
        (
            "knowledge",
            "k.md",
            SIGNED + "---\ntitle: Tides\ntags: [sea, moon]\nversion: 1.0\n---\n# Other\n",
            ItemDescription("k", "Tides", "", "", ("sea", "moon"), "1.0"),
        ),
        (
            "knowledge",
            "k.md",
            "# Tides\n\n```yaml\nname: k\ndescription: High and low.\n```\n",
            ItemDescription("k", "Tides", "High and low."),
        ),
        ("knowledge", "k.md", "---\n: [\n---\n# Kept\n", ItemDescription("k", "k")),
        ("knowledge", "k.md", "---\nno end\n# Kept\n", ItemDescription("k", "Kept")),
        ("knowledge", "k.yaml", "title: Y\r\n", ItemDescription("k", "Y")),
        ("config", "agent/agent.yaml", "title: no", ItemDescription("agent", "agent", "", "agent")),
    ],
)
def test_each_kind_is_described_by_what_it_declares(kind, relative, text, expected):
    assert describe(kind, relative, text.encode()) == expected


@given(kind=st.sampled_from(sorted(KIND_FOLDERS)), content=st.binary(max_size=400))
def test_no_content_makes_it_fail(kind, content):
    for extension in (".py", ".md", ".yaml", ".json", ".sh"):
        assert describe(kind, f"a/b{extension}", content).name == "b"


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.yaml", f"title: 0x{'f' * 9000}"), ("a.py", f"__version__ = 0x{'f' * 9000}")],
)
def test_a_number_of_more_digits_than_python_writes_is_not_shown(name, content):
    kind = "tool" if name.endswith(".py") else "knowledge"
    assert describe(kind, name, content.encode()) == ItemDescription("a", "a")


@pytest.mark.parametrize(
    "hostile",
    ["# a" + " " * 60_000 + "b", "```yaml\n" * 8000, "<directive><description>" * 2500],
)
def test_a_hostile_header_costs_no_more_than_reading_it(hostile):
    with at_most_cpu(0.5):
        for kind in ("directive", "knowledge"):
            describe(kind, "a.md", hostile.encode())


FENCE = "```yaml\nname: tides\ntags: [sea]\n```\n"
SIGNED_KNOWLEDGE = f"<!-- rye:signed:2026-01-01T00:00:00Z:{'0' * 64}:abc:0123456789abcdef -->\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("The moon pulls.\n", "The moon pulls."),
        (f"{SIGNED_KNOWLEDGE}The moon pulls.\n", "The moon pulls."),
        (f"{SIGNED_KNOWLEDGE}# Tides\n\n{FENCE}\nThe moon pulls.\n", "# Tides\n\nThe moon pulls."),
        (f"{FENCE}The moon pulls.", "The moon pulls."),
        (f"{SIGNED_KNOWLEDGE}---\nname: tides\n---\nThe moon pulls.", "The moon pulls."),
        ("---\n---\nThe moon pulls.", "The moon pulls."),
        ("# rye:signed:x\nmoon: pulls\n", "moon: pulls"),
        (f"{SIGNED_KNOWLEDGE}# Tides\r\n\r\nThe moon\r\npulls.\r\n", "# Tides\n\nThe moon\npulls."),
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
