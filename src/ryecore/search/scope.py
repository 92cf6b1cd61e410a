"""Which items a search looks through. Pure.

A scope is written `*`, `tool`, `tool.acme.*`, `tool:acme/*` or `rye.fetch.tool.acme.*`, or as a
list of these; inside, each is the capability pattern that fetches the same items.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from attrs import frozen

from ryecore.errors import InvalidQuery
from ryecore.items.exports import EXPORT_FOLDER
from ryecore.items.refs import KIND_FOLDERS
from ryecore.policy import allows, capability_of

__all__ = ["Scope", "hint_for", "parse_scope"]

_PREFIX: Final = "rye.fetch."
_PATTERN: Final = re.compile(r"[A-Za-z0-9_.*-]+")
_MAX_PARTS: Final = 32
_FORMS: Final = (
    f"Write * or one of {', '.join(KIND_FOLDERS)}, or such as tool.acme.* for a folder with all "
    "below it, or tool.acme.report for one item."
)


@frozen
class Scope:
    """Which items are looked through.

    Attributes:
        text: The scope as it was written.
        patterns: Capability patterns.
    """

    text: str
    patterns: tuple[str, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that it reaches."""
        return tuple(
            kind
            for kind in KIND_FOLDERS
            if any(
                pattern.startswith(f"{_PREFIX}{kind}.") or pattern == f"{_PREFIX}*"
                for pattern in self.patterns
            )
        )

    @property
    def names_exports(self) -> bool:
        """Whether it names the folder of exports of threads, or something in it."""
        folder = f"{_PREFIX}knowledge.{EXPORT_FOLDER.replace('/', '.')}."
        return any(pattern.startswith(folder) for pattern in self.patterns)

    def holds(self, kind: str, item_id: str) -> bool:
        """Whether an item lies in it."""
        return allows(self.patterns, capability_of("fetch", kind, item_id))


def hint_for(scope: Scope, source: str, holds_any: Callable[[Scope], bool]) -> str:
    """Say what scopes look like, where no item lies in one; nothing where one does.

    Args:
        scope: The scope.
        source: The one space that is searched; `all` for every one.
        holds_any: Whether any item lies in a scope.
    """
    if scope.text == "*" or holds_any(scope):
        return ""
    where = "" if source == "all" else f" in {source} space"
    wider = Scope(
        " ".join(f"{_bare(pattern)}.*" for pattern in scope.patterns),
        tuple(f"{pattern.rstrip('.')}.*" for pattern in scope.patterns),
    )
    meant = f" Did you mean {wider.text}?" if holds_any(wider) else ""
    return f"No item lies in the scope {scope.text}{where}.{meant} {_FORMS}"


def _bare(pattern: str) -> str:
    return pattern.removeprefix(_PREFIX).rstrip(".")


def parse_scope(scope: str | Sequence[str]) -> Scope:
    """Read a scope.

    Args:
        scope: One, or a list of several, of which each adds what it names.

    Returns:
        The scope.

    Raises:
        InvalidQuery: It names no kind, or has another form.
    """
    parts = [scope] if isinstance(scope, str) else scope
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        _refuse(scope)
    if not parts or len(parts) > _MAX_PARTS:
        _refuse(scope)
    return Scope(" ".join(parts), tuple(_pattern(part.strip()) for part in parts))


def _pattern(text: str) -> str:
    if text == "*":
        return f"{_PREFIX}*"
    bare = text.removeprefix(_PREFIX)
    kind, colon, item_id = bare.partition(":")
    if colon:
        bare = f"{kind}.{item_id.replace('/', '.')}" if item_id else kind
    kind, _, rest = bare.partition(".")
    if kind not in KIND_FOLDERS or not _PATTERN.fullmatch(bare):
        _refuse(text)
    return f"{_PREFIX}{kind}.{rest or '*'}"


def _refuse(scope: object) -> NoReturn:
    raise InvalidQuery(
        f"scope must specify a kind (e.g., rye.fetch.directive.*), not {scope!r}.",
        next_step=_FORMS,
        query=str(scope),
    )
