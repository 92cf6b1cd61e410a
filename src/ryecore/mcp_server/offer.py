"""mcp/serve.yaml: which items of a project its MCP clients are offered, and how.

Source: docs/how-to/serve-mcp.md; decision 11.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from attrs import evolve

from ryecore.chain.config import ConfigReader, ConfigResolver
from ryecore.chain.spec import ConfigSpec
from ryecore.convert.config import Check, Configuration, Reader, between
from ryecore.convert.lines import Place
from ryecore.errors import InvalidItemId
from ryecore.frozen import frozen
from ryecore.items.refs import check_item_id
from ryecore.policy import allows

__all__ = [
    "Offer",
    "OfferReader",
    "ResourceTemplateEntry",
    "check_origin",
    "check_pattern",
    "matches",
]

SERVE_PATH: Final = "mcp/serve.yaml"
_SPEC: Final = ConfigSpec(SERVE_PATH, signed=True)
_PATTERN: Final = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9_*/-]*", re.ASCII)
_TEMPLATE: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://[^\s{}]*(?:\{[A-Za-z_][A-Za-z0-9_]*\}[^\s{}]*)+"
)
_MAX_PAGE: Final = 1000


def check_pattern(value: object, kind: str) -> str:
    """Return a pattern of ids, without the kind that may stand before it.

    Raises:
        ValueError: It isn't one, as the end of a sentence about it.
    """
    if isinstance(value, str):
        pattern = value.removeprefix(f"{kind}:")
        if _PATTERN.fullmatch(pattern):
            return pattern
    raise ValueError(f"must be the id of a {kind}, or a pattern such as acme/*")


def check_origin(value: object) -> str:
    """Return an origin, such as `https://app.example`, or `*` for all.

    Raises:
        ValueError: It isn't one, as the end of a sentence about it.
    """
    if value == "*":
        return "*"
    if isinstance(value, str) and value.isprintable() and " " not in value:
        try:
            parts = urlsplit(value)
            is_whole = parts.hostname and not (parts.path or parts.query or parts.fragment)
            if is_whole and parts.port != 0 and parts.username is None:
                return value.lower()
        except ValueError:
            pass
    raise ValueError("must be an origin without a path, such as https://app.example, or *")


def matches(patterns: Iterable[str], item_id: str, *, is_system: bool = False) -> bool:
    """Return whether a pattern matches an id; `*` stands for any text, slashes included.

    An item of a system bundle is matched only by a pattern that begins with some of its id.
    """
    dotted = item_id.replace("/", ".")
    return any(
        allows((one.replace("/", "."),), dotted)
        for one in patterns
        if not (is_system and one.startswith("*"))
    )


def _read_template(value: object) -> str:
    if isinstance(value, str) and len(value) <= 1000 and _TEMPLATE.fullmatch(value):
        return value
    raise ValueError("must be a URI with variables, such as shop://orders/{order_id}")


def _read_tool(value: object) -> str:
    try:
        return check_item_id(value.removeprefix("tool:") if isinstance(value, str) else "")
    except InvalidItemId:
        raise ValueError("must be the id of a tool, such as acme/order") from None


_Origin = Annotated[str, Reader(check_origin)]
_Tools = tuple[Annotated[str, Reader(lambda one: check_pattern(one, "tool"))], ...]
_Directives = tuple[Annotated[str, Reader(lambda one: check_pattern(one, "directive"))], ...]
_Knowledge = tuple[Annotated[str, Reader(lambda one: check_pattern(one, "knowledge"))], ...]
_MimeType = Annotated[str, Check("a media type", re.compile(r"[\w.+-]+/[\w.+-]+").fullmatch)]


@frozen
class ResourceTemplateEntry:
    """Resources that a signed tool makes, as serve.yaml has them.

    Attributes:
        uri: The URI, with a `{variable}` for each parameter of the tool.
        tool: The tool; what it returns is the resource's content.
        title: Its name for people; the tool's by default.
        mime_type: The media type of its content; by default that of what the tool returns.
    """

    uri: Annotated[str, Reader(_read_template)]
    tool: Annotated[str, Reader(_read_tool)]
    title: str = ""
    mime_type: _MimeType | None = None


@frozen
class Offer:
    """What the MCP clients of a project are offered.

    Attributes:
        verbs: Whether there are `rye_execute`, `rye_fetch` and, where it is allowed, `rye_sign`.
        tools: The patterns of the tools that are MCP tools of their own.
        directives: The patterns of the directives that are prompts.
        knowledge: The patterns of the knowledge items that are resources.
        templates: Resources that tools make.
        allowed_origins: The origins of web pages that may call the server over HTTP.
        results: Whether a result is sent `once`, as text or structured content, or as `both`.
        page_size: The most entries of one page of a list.
        poll_after_s: After how many seconds a call's stream over HTTP is closed, so that its client
            polls for the result; None for never.
    """

    verbs: bool = True
    tools: _Tools = ()
    directives: _Directives = ("*",)
    knowledge: _Knowledge = ("*",)
    templates: tuple[ResourceTemplateEntry, ...] = ()
    allowed_origins: tuple[_Origin, ...] = ()
    results: Literal["once", "both"] = "once"
    page_size: Annotated[int, between(1, _MAX_PAGE)] = 100
    poll_after_s: Annotated[float, between(0.1, 3600)] | None = None

    def with_options(self, *, tools: Iterable[str], verbs: bool, both: bool) -> "Offer":
        """Return the offer with what the command line adds to it."""
        return evolve(
            self,
            tools=(*self.tools, *tools),
            verbs=self.verbs and verbs,
            results="both" if both else self.results,
        )


class OfferReader(ConfigReader[Offer]):
    """Reads serve.yaml; see `ConfigReader`."""

    def __init__(self, configs: ConfigResolver) -> None:
        super().__init__(configs, _SPEC, _read)


def _read(configuration: Configuration) -> Offer:
    found = configuration.read(Offer)
    problems = [*_problems(found)]
    if problems:
        raise configuration.error(problems)
    return found


def _problems(found: Offer) -> Iterator[tuple[Place, str]]:
    seen: set[str] = set()
    for index, one in enumerate(found.templates):
        if one.uri in seen:
            yield ("templates", index, "uri"), f"is there twice: {one.uri}"
        seen.add(one.uri)
