"""The XML of a directive, read into elements that know their line.

There are no DTDs, entities or processing instructions. What stands in `template`, `example` and
`raw` is text, whatever it looks like: it is taken out before the XML is read.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from ryecore.convert.lines import quoted
from ryecore.errors import MetadataError
from ryecore.frozen import frozen

__all__ = ["OPAQUE", "DirectiveProblem", "Element", "parse_markup"]

MAX_DEPTH: Final = 32
_MAX_ELEMENTS: Final = 10_000
OPAQUE: Final = ("template", "example", "raw")
_MARK: Final = re.compile(
    r"<!--|<!\[CDATA\["
    rf"|<({'|'.join(OPAQUE)})(?=[\s/>])(?:[^<>\"'/]|/(?!>)|\"[^\"<]*\"|'[^'<]*')*(/?)>"
)
_ENDS: Final = {
    "<!--": re.compile("-->"),
    "<![CDATA[": re.compile(r"\]\]>"),
    **{tag: re.compile(rf"</{tag}\s*>") for tag in OPAQUE},
}


class DirectiveProblem(ValueError):
    """What is wrong, and the line of the file; the parser makes a `MetadataError` of it."""

    def __init__(self, problem: str, line: int | None, next_step: str = "") -> None:
        super().__init__(problem)
        self.line = line
        self.next_step = next_step

    def error(self, path: Path) -> MetadataError:
        """Return the error that leaves the room."""
        place = f"{path}, line {self.line}" if self.line else str(path)
        return MetadataError(
            f"{place}: {self}.",
            next_step=self.next_step or "Correct the file and sign it again.",
            path=path,
            line=self.line,
        )


@frozen
class Element:
    """An XML element, with the text directly in it, and the file's line on which it begins."""

    tag: str
    attributes: Mapping[str, str]
    children: tuple["Element", ...]
    text: str
    line: int

    def all(self, tag: str) -> Iterator["Element"]:
        """Return the elements of a name that stand directly in it."""
        return (child for child in self.children if child.tag == tag)

    def one(self, tag: str) -> "Element | None":
        """Return the one element of a name that stands directly in it, if any."""
        found = tuple(self.all(tag))
        if len(found) > 1:
            raise DirectiveProblem(f"<{tag}> stands there twice", found[1].line)
        return found[0] if found else None

    def check(
        self, *, attributes: tuple[str, ...] = (), children: tuple[str, ...] | None = ()
    ) -> None:
        """Check that it has no attributes and no elements but these; None allows all elements.

        The DirectiveProblem lists the valid ones.
        """
        for name in self.attributes:
            if name not in attributes:
                raise self.problem(f"has the attribute {quoted(name)}", attributes)
        for child in self.children:
            if children is not None and child.tag not in children:
                raise DirectiveProblem(
                    f"<{self.tag}> holds the unknown element <{child.tag}>; "
                    f"{_valid(tuple(f'<{name}>' for name in children))}",
                    child.line,
                )

    def problem(self, what: str, valid: tuple[str, ...] | None = None) -> DirectiveProblem:
        """Return what is wrong with it."""
        suffix = "" if valid is None else f"; {_valid(valid)}"
        return DirectiveProblem(f"<{self.tag}> {what}{suffix}", self.line)

    def required(self, name: str) -> str:
        """Return an attribute that the element must have, and not empty."""
        value = self.attributes.get(name, "").strip()
        if not value:
            raise self.problem(f"has no {name}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return an attribute that must be true or false."""
        value = self.attributes.get(name)
        if value not in (None, "true", "false"):
            raise self.problem(f'has {name}="{value}", neither true nor false')
        return default if value is None else value == "true"


def _valid(names: tuple[str, ...]) -> str:
    return f"valid are {', '.join(names)}" if names else "it has none"


def parse_markup(xml: str, first_line: int) -> Element:
    """Return the root element of XML that begins on the file's `first_line`.

    DirectiveProblem is raised where it is broken, out of bounds, or holds what is not allowed.
    """
    # Their imports are large, and who runs no directive needs neither.
    from xml.etree.ElementTree import ParseError  # noqa: PLC0415 - only the error

    from defusedxml import EntitiesForbidden  # noqa: PLC0415
    from defusedxml.ElementTree import XMLParser  # noqa: PLC0415

    masked, contents = _mask(xml)
    target = _Target(contents)
    parser: Any = XMLParser(target=target)
    lines = parser.parser  # the expat parser below it, which counts lines
    lines.EndDoctypeDeclHandler = target.end_doctype
    target.line = lambda: lines.CurrentLineNumber - 1 + first_line
    try:
        parser.feed(masked)
        root: Element = parser.close()
    except ParseError as problem:
        line = problem.position[0] - 1 + first_line
        raise DirectiveProblem(f"broken XML: {str(problem).partition(': line')[0]}", line) from None
    except EntitiesForbidden as problem:
        kind = "external entity" if problem.sysid else "entity"
        raise DirectiveProblem(
            f"the XML declares the {kind} {quoted(problem.name)}, which is not allowed",
            target.line(),
        ) from None
    return root


def _mask(xml: str) -> tuple[str, dict[str, str]]:
    """Take the content of opaque elements out; a name that stands for it stays, and its lines."""
    parts: list[str] = []
    contents: dict[str, str] = {}
    done = position = 0
    while (found := _MARK.search(xml, position)) is not None:
        if found[2]:  # an empty element
            position = found.end()
            continue
        close = _ENDS[found[1] or found[0]].search(xml, found.end())
        if close is None:
            break  # the parser says what is not closed, and where
        if found[1]:
            content = xml[found.end() : close.start()]
            name = f"opaque-{len(contents)}"
            parts += [xml[done : found.end()], name, "\n" * content.count("\n")]
            contents[name] = content
            done = close.start()
        position = close.end()
    return "".join([*parts, xml[done:]]), contents


@define
class _Open:
    """An element that is not closed yet."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(factory=list)
    text: list[str] = field(factory=list)


class _Target:
    """Builds elements from what the parser tells."""

    def __init__(self, contents: Mapping[str, str]) -> None:
        self.line: Callable[[], int] = int
        self._contents = contents
        self._open = [_Open("", {}, 0)]
        self._count = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) > MAX_DEPTH:
            raise DirectiveProblem("the XML is nested too deeply", self.line())
        if self._count > _MAX_ELEMENTS:
            raise DirectiveProblem("the XML has too many elements", self.line())
        self._open.append(_Open(tag, attributes, self.line()))

    def data(self, text: str) -> None:
        self._open[-1].text.append(text)

    def end(self, _tag: str) -> None:
        done = self._open.pop()
        text = "".join(done.text).strip()
        if done.tag in OPAQUE:
            text = self._contents.get(text, text)
        self._open[-1].children.append(
            Element(done.tag, done.attributes, tuple(done.children), text, done.line)
        )

    def pi(self, target: str, _data: str = "") -> None:
        raise DirectiveProblem(
            f"the XML has a processing instruction, <?{target[:20]}?>, which is not allowed",
            self.line(),
        )

    def end_doctype(self) -> None:
        raise DirectiveProblem("the XML has a DTD, which is not allowed", self.line())

    def close(self) -> Element:
        return self._open[0].children[0]
