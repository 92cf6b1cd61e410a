"""The three parts of a directive's file, and files that have not got them."""

import pytest

from ryecore.directives.parser import MAX_FILE_BYTES, MAX_XML_BYTES
from ryecore.errors import MetadataError
from tests.timing import at_most_cpu
from tests.unit.directives.files import file, parse


def refused(content, match, line=None):
    with pytest.raises(MetadataError, match=match) as refusal:
        parse(content)
    assert refusal.value.line == line
    assert refusal.value.next_step
    assert "tides.md" in str(refusal.value)


def test_title_prose_and_instructions_are_told_apart():
    found = parse("# High tides #\n\nProse.\n\n" + file().partition("\n\n")[2])
    assert found.title == "High tides"
    assert found.preamble == "# High tides #\n\nProse."
    assert found.body == "Do it."
    assert found.raw.startswith('<directive name="tides"')
    assert found.content.startswith("# High tides #")


def test_the_signature_line_is_no_part_and_lines_are_the_files():
    signed = "<!-- rye:signed:x -->\n" + file("<inputs><input/></inputs>")
    refused(signed, "<input> has no name", line=7)
    assert "rye:signed" not in parse("<!-- rye:signed:x -->\n" + file()).content


def test_an_example_within_another_fence_is_passed_over():
    example = '````markdown\n```xml\n<directive name="wrong"/>\n```\n````\n'
    tildes = '~~~\n```xml\n<directive name="wrong"/>\n```\n~~~\n'
    assert parse(example + tildes + file()).name == "tides"


def test_a_fence_of_four_marks_is_no_xml_block():
    assert parse('````xml\n<directive name="wrong"/>\n````\n' + file()).name == "tides"


def test_only_the_first_block_counts_and_later_ones_are_instructions():
    found = parse(file(body="First.\n\n```xml\n<step/>\n```\n\nLast."))
    assert found.body == "First.\n\n```xml\n<step/>\n```\n\nLast."


def test_an_indented_fence_within_the_block_is_content():
    found = parse(file("<example>\n  ```\n  code\n  ```\n</example>"))
    assert found.body == "Do it."


@pytest.mark.parametrize(
    ("content", "match", "line"),
    [
        ("", "no XML block", None),
        ("# Title\n\nProse alone.\n", "no XML block", None),
        ("```yaml\na: 1\n```\n", "no XML block", None),
        (" ```xml\n<directive/>\n ```\n", "no XML block", None),
        ("\n```xml\n<directive name='tides'/>\n", "has no end", 2),
        ("````\n```xml\n<directive name='tides'/>\n```\n", "has no end", 1),
        ("```xml\n```\n", "broken XML: no element found", 2),
    ],
)
def test_a_broken_fence_is_named_with_its_line(content, match, line):
    refused(content, match, line)


def test_a_file_with_carriage_returns_reads_like_one_without():
    plain, windows = parse(file()), parse(file().replace("\n", "\r\n"))
    assert windows == plain


def test_a_byte_order_mark_is_no_part_of_the_file():
    assert parse(b"\xef\xbb\xbf" + file().encode()) == parse(file())


def test_what_is_no_utf_8_is_named_with_its_line():
    refused(b"# Tides\n\n\xff\n", "it is not UTF-8", line=3)


def test_a_file_of_five_megabytes_is_refused_at_once():
    huge = file(body="x" * (5 * 1024 * 1024))
    with at_most_cpu(1):
        refused(huge, f"at most {MAX_FILE_BYTES}")


@pytest.mark.parametrize(
    "fill", ["x", "`", "``` ", "{", "{input:", "${inputs.", "<", "\n# ", "~~~\n"]
)
def test_the_largest_file_is_read_in_well_under_a_second(fill):
    body = fill * ((MAX_FILE_BYTES - 500) // len(fill))
    with at_most_cpu(1):
        found = parse(file(body=body))
        found.with_inputs({"a": 1})


def test_a_block_that_is_too_large_is_refused():
    refused(file("<x>" + "y" * MAX_XML_BYTES + "</x>"), "more than", line=3)
