"""Read a directive's file: prose, one XML block, and the instructions behind it.

Source: docs/design/execute.md#directives; docs/design/threads.md#the-directive; decision 34.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

from ryecore.directives.hooks import directive_id, read_hooks_element
from ryecore.directives.inputs import read_declared
from ryecore.directives.markup import OPAQUE, Element, parse_markup
from ryecore.directives.model import Action, ContextSpec, Directive, ModelSpec
from ryecore.directives.permissions import read_permissions
from ryecore.directives.problems import DirectiveProblem
from ryecore.directives.sections import Sections, split_sections
from ryecore.items.signature import COMMENT_FORMS, split_content
from ryecore.policy.limits import Limits, read_limits

__all__ = ["parse_directive"]

T = TypeVar("T")
V = TypeVar("V")

_METADATA: Final = frozenset({
    "description", "category", "author", "model", "limits", "permissions", "cost", "hooks",
    "context", "continuation_directive",
})  # fmt: skip
_CONTEXT: Final = ("system", "before", "after", "suppress")


def parse_directive(content: bytes, path: Path) -> Directive:
    """Read a directive.

    Args:
        content: The file's bytes, verified already.
        path: Where it stands; its stem is the directive's name.

    Returns:
        The directive.

    Raises:
        MetadataError: The file is broken or says what can't be; with the line.
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
        raise root.problem(f"has the name {name!r}, and the file is called {stem!r}")
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
    """The elements that are read, which stand there once, and the text of all others."""
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
    """What a reader makes of a value; a ValueError gets the element's line."""
    if value is None:
        return None
    try:
        return read(value)
    except ValueError as problem:
        raise element.problem(str(problem)) from None


def _model(element: Element | None) -> ModelSpec | None:
    if element is None:
        return None
    element.check(attributes=("tier", "id", "provider", "fallback", "parallel"))
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
    return ModelSpec(**named, parallel=parallel)


def _limits(element: Element | None) -> Limits:
    """Limits as attributes, as elements, or both; one that stands there twice is refused."""
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
    """Every `<action>` outside the metadata, in the order of the file."""
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
            raise child.problem(f"names {name!r} once more")
        parameters[name] = child.text
    return Action(element.attributes, parameters)
