"""Read a directive's file: prose, one XML block, and the instructions behind it.

Source: docs/design/execute.md#directives; docs/design/threads.md#the-directive; decision 34.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar, get_args

from attrs import field

from ryecore.convert.lines import quoted
from ryecore.directives.hooks import directive_id, read_hooks_element
from ryecore.directives.inputs import read_declared
from ryecore.directives.markup import OPAQUE, DirectiveProblem, Element, parse_markup
from ryecore.directives.model import Action, ContextSpec, Directive, ModelSpec, PromptCache
from ryecore.directives.permissions import read_permissions
from ryecore.frozen import frozen
from ryecore.items.signature import COMMENT_FORMS, split_content
from ryecore.policy.limits import Limits, read_limits

__all__ = ["MAX_FILE_BYTES", "MAX_XML_BYTES", "Sections", "parse_directive"]

T = TypeVar("T")
V = TypeVar("V")

_METADATA: Final = frozenset({
    "description", "category", "author", "model", "limits", "permissions", "cost", "hooks",
    "context", "continuation_directive",
})  # fmt: skip
_CONTEXT: Final = ("system", "before", "after", "suppress")


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
        xml: The content of the XML block.
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
    """Split a file without its signature lines, of which the count makes lines the file's.

    A file that is too large, not UTF-8, or has no whole XML block, is a DirectiveProblem.
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

    opened, fence = _xml_block(text, line_at)
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


def _xml_block(text: str, line_at: Callable[[int], int]) -> tuple[re.Match[str], re.Match[str]]:
    """Return the opening and closing fences of the first XML block.

    Fences stand at the start of a line, so an indented one inside the XML is content. A block that
    stands within another fence is an example, and is passed over.
    """
    opened = None
    for fence in _FENCE.finditer(text):
        marks, info = fence[1], fence[2].strip()
        if opened is None:
            opened = fence
        elif not info and marks[0] == opened[1][0] and len(marks) >= len(opened[1]):
            if opened[1] == "```" and opened[2].strip() == "xml":
                return opened, fence
            opened = None
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


def parse_directive(content: bytes, path: Path) -> Directive:
    """Read a directive from its verified bytes; the stem of its path is its name.

    Raises MetadataError, with the line.
    """
    parts = split_content(content, COMMENT_FORMS[".md"])
    try:
        sections = split_sections(parts.before + parts.after, 0 if parts.line is None else 1)
        root = parse_markup(sections.xml, sections.xml_line)
        return _directive(root, sections, path.stem)
    except DirectiveProblem as problem:
        raise problem.error(path) from None


def _directive(root: Element, sections: Sections, stem: str) -> Directive:
    if root.tag != "directive":
        raise root.problem("is the root, which is <directive>")
    root.check(attributes=("name", "version", "extends"), children=None)
    name = root.required("name")
    if name != stem:
        raise root.problem(f"has the name {quoted(name)}, and the file is called {quoted(stem)}")
    for child in root.children:
        if child.tag in _METADATA:
            raise child.problem("stands in <metadata>, not beside it")
    metadata = root.one("metadata") or Element("metadata", {}, (), "", root.line)
    metadata.check(children=None)
    found, other = _by_tag(metadata)

    def text(tag: str) -> str:
        element = found.get(tag)
        return element.text if element else ""

    permissions = found.get("permissions")
    continuation = found.get("continuation_directive")
    return Directive(
        name=name,
        version=root.attributes.get("version", ""),
        extends=_checked(root, directive_id, root.attributes.get("extends")),
        title=sections.title,
        preamble=sections.preamble,
        description=text("description"),
        category=text("category") if "category" in found else None,
        author=text("author"),
        model=_model(found.get("model")),
        limits=_limits(found.get("limits")),
        permissions=read_permissions(permissions),
        declares_permissions=permissions is not None,
        cost=_cost(found.get("cost")),
        hooks=read_hooks_element(found.get("hooks"), name),
        context=_context(found.get("context")),
        inputs=read_declared(root.one("inputs"), "input"),
        outputs=read_declared(root.one("outputs"), "output"),
        continuation_directive=(
            _checked(continuation, directive_id, continuation.text) if continuation else None
        ),
        actions=tuple(map(_action, _actions(root))),
        other=other,
        body=sections.body,
        body_line=sections.body_line,
        content=sections.text,
        raw=sections.xml,
    )


def _by_tag(metadata: Element) -> tuple[dict[str, Element], dict[str, str]]:
    """Return the elements that are read, which stand there once, and the text of all others."""
    found: dict[str, Element] = {}
    other: dict[str, str] = {}
    for child in metadata.children:
        if child.tag not in _METADATA:
            other[child.tag] = child.text
        elif child.tag in found:
            raise child.problem("stands there twice")
        else:
            found[child.tag] = child
    return found, other


def _checked(element: Element, read: Callable[[V], T], value: V | None) -> T | None:
    """Return what a reader makes of a value; a ValueError gets the element's line."""
    if value is None:
        return None
    try:
        return read(value)
    except ValueError as problem:
        raise element.problem(str(problem)) from None


_CACHES: Final[Mapping[str, PromptCache]] = {one: one for one in get_args(PromptCache)}


def _model(element: Element | None) -> ModelSpec | None:
    if element is None:
        return None
    element.check(attributes=("tier", "id", "provider", "fallback", "parallel", "cache"))
    named = {
        name: element.attributes[name].strip() or None
        for name in ("tier", "id", "provider", "fallback")
        if name in element.attributes
    }
    if not (named.get("tier") or named.get("id")):
        raise element.problem("has neither tier nor id")
    if named.get("provider") and not named.get("id"):
        raise element.problem("has a provider, but no id")
    has_parallel = "parallel" in element.attributes
    parallel = element.flag("parallel", default=False) if has_parallel else None
    cache = _CACHES.get(written := element.attributes.get("cache", "").strip())
    if cache is None and "cache" in element.attributes:
        raise element.problem(f"has the cache '{written}', which isn't one of {', '.join(_CACHES)}")
    return ModelSpec(**named, parallel=parallel, cache=cache)


def _limits(element: Element | None) -> Limits:
    """Read limits from attributes, elements, or both; refuse one that is declared twice."""
    if element is None:
        return Limits()
    declared: dict[str, object] = dict(element.attributes)
    for child in element.children:
        child.check()
        if child.tag in declared:
            raise child.problem("stands there twice")
        declared[child.tag] = child.text
        _checked(child, read_limits, {child.tag: child.text})
    return _checked(element, read_limits, declared) or Limits()


def _cost(element: Element | None) -> Mapping[str, str]:
    if element is None:
        return {}
    said = {child.tag: child.text for child in element.children}
    return {**element.attributes, **said, **({"text": element.text} if element.text else {})}


def _context(element: Element | None) -> ContextSpec:
    if element is None:
        return ContextSpec()
    element.check(children=_CONTEXT)
    for child in element.children:
        child.check()
        if not child.text:
            raise child.problem("names no item")
    return ContextSpec(**{tag: tuple(child.text for child in element.all(tag)) for tag in _CONTEXT})


def _actions(element: Element) -> Iterator[Element]:
    """Return every `<action>` outside the metadata, in the order of the file."""
    for child in element.children:
        if child.tag == "action":
            yield child
        elif child.tag != "metadata" and child.tag not in OPAQUE:
            yield from _actions(child)


def _action(element: Element) -> Action:
    parameters: dict[str, object] = {}
    for child in element.children:
        if child.tag not in ("param", "input"):
            raise element.problem(f"holds <{child.tag}>", ("<param>", "<input>"))
        name = child.required("name")
        if name in parameters:
            raise child.problem(f"names {quoted(name)} once more")
        parameters[name] = child.text
    return Action(element.attributes, parameters)
