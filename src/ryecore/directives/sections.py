"""A directive's file in three parts: prose, the XML block, and the instructions behind it."""

import re
from typing import Final

from attrs import field, frozen

from ryecore.directives.problems import DirectiveProblem

__all__ = ["MAX_FILE_BYTES", "MAX_XML_BYTES", "Sections", "split_sections"]

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_XML_BYTES: Final = 1024 * 1024
_FENCE: Final = re.compile(r"^(`{3,}|~{3,})[ \t]*([^`\n]*)$", re.MULTILINE)
_TITLE: Final = re.compile(r"^# +(.+?)[ \t#]*$", re.MULTILINE)


@frozen
class Sections:
    """The parts of a directive's file.

    Attributes:
        text: The whole file without its signature line; every line ends in a line feed.
        preamble: The prose before the XML block.
        title: The first heading of the prose; empty where there is none.
        xml: What stands in the XML block.
        xml_line: The file's line on which the XML begins, counted from 1.
        body: The instructions behind the XML block.
        body_line: The file's line on which they begin.
    """

    text: str = field(repr=False)
    preamble: str
    title: str
    xml: str
    xml_line: int
    body: str
    body_line: int


def split_sections(content: bytes, signature_lines: int) -> Sections:
    """Part a file at its first XML block.

    Fences stand at the start of a line, so an indented one inside the XML is content. A block that
    stands within another fence is an example, and is passed over.

    Args:
        content: The file without its signature line.
        signature_lines: How many lines that was, so that lines are the file's.

    Returns:
        The parts.

    Raises:
        DirectiveProblem: It is too large, no UTF-8, or has no whole XML block.
    """
    if len(content) > MAX_FILE_BYTES:
        raise DirectiveProblem(
            f"it has {len(content)} bytes, and a directive at most {MAX_FILE_BYTES}",
            None,
            "Put what is long into knowledge items, and sign it again.",
        )
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1 + signature_lines
        raise DirectiveProblem("it is not UTF-8", line) from None

    def line_at(offset: int) -> int:
        return text.count("\n", 0, offset) + 1 + signature_lines

    opened = None
    for fence in _FENCE.finditer(text):
        marks, info = fence[1], fence[2].strip()
        if opened is None:
            opened = fence
        elif not info and marks[0] == opened[1][0] and len(marks) >= len(opened[1]):
            if _is_xml(opened):
                break
            opened = None
    else:
        if opened is None:
            raise DirectiveProblem(
                "it has no XML block",
                None,
                "Write one that begins with ```xml at the start of a line and holds "
                '<directive name="...">; sign it again.',
            )
        raise DirectiveProblem(
            f"the block that begins with {opened[0].strip()[:20]} has no end",
            line_at(opened.start()),
            "Close it with the same marks at the start of a line, and sign it again.",
        )
    xml = text[opened.end() + 1 : fence.start()]
    if len(xml.encode()) > MAX_XML_BYTES:
        raise DirectiveProblem(
            f"its XML block has more than {MAX_XML_BYTES} bytes",
            line_at(opened.start()),
            "Put the instructions behind the block, and sign it again.",
        )
    preamble = text[: opened.start()]
    title = _TITLE.search(preamble)
    after = text[fence.end() + 1 :]
    body = after.strip()
    return Sections(
        text=text,
        preamble=preamble.strip(),
        title=title[1] if title else "",
        xml=xml,
        xml_line=line_at(opened.end() + 1),
        body=body,
        body_line=line_at(fence.end() + 1 + len(after) - len(after.lstrip())),
    )


def _is_xml(fence: re.Match[str]) -> bool:
    return fence[1] == "```" and fence[2].strip() == "xml"
