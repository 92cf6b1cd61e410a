"""Parse what people and models search for: the query, into FTS5's language, and the scope. Pure.

    tides moon              both words              "high tide"     exactly this
    tides OR moon           either                  tid*            words that begin so
    tides NOT moon          the first alone         title: tides    in one field
    (tides OR moon) sea     groups                  NEAR(a b, 5)    close to each other
    *                       everything

Anything else in a word, such as `file-system/write`, is a phrase of its parts. So no text is a
syntax error of SQLite's, and an error names the place that can't be read.

A scope is written `*`, `tool`, `tool.acme.*`, `tool:acme/*` or `rye.fetch.tool.acme.*`, or as a
list of these; inside, each is the capability pattern that fetches the same items.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final, Literal, NoReturn

from attrs import evolve

from ryecore.display.sanitize import replace_controls
from ryecore.errors import InvalidQuery
from ryecore.frozen import frozen
from ryecore.items.refs import EXPORT_FOLDER, KIND_FOLDERS
from ryecore.policy import allows, capability_of

__all__ = ["FIELDS", "Query", "Scope", "hint_for", "parse_scope", "translate"]

FIELDS: Final = ("name", "title", "description", "category", "tags", "content")
"""The fields that are searched, in the order of the index's columns."""

_MAX_CHARACTERS: Final = 1000
_MAX_TERMS: Final = 64
_MAX_DEPTH: Final = 20
_NEAR_DISTANCE: Final = 10  # FTS5's own default

_FIELD: Final = re.compile(rf"({'|'.join(FIELDS)}):", re.IGNORECASE)
_REF: Final = re.compile(rf"(?:{'|'.join(KIND_FOLDERS)}):(?=.)")
_WORD: Final = re.compile(r'[^\s"()]+')
_PHRASE: Final = re.compile(r'"((?:[^"]|"")*)"(\*?)')
_DISTANCE: Final = re.compile(r",\s*(\d{1,4})\s*\Z")

_Kind = Literal["phrase", "near", "field", "(", ")", "AND", "OR", "NOT"]


@frozen
class Query:
    """A query for the index: in FTS5's language (None for everything), and the phrases to find.

    A phrase that ends in `*` is a prefix.
    """

    match: str | None
    phrases: tuple[str, ...] = ()

    def of_names(self) -> "Query":
        """Return the same query, of only the names of items."""
        return self.in_field("name")

    def in_field(self, field: str) -> "Query":
        """Return the same query of only one of `FIELDS`."""
        return self if self.match is None else evolve(self, match=f"{field} : ({self.match})")


@frozen
class _Token:
    """A part of the query: for a phrase or NEAR, its FTS5 text; empty where nothing can match."""

    kind: _Kind
    at: int
    text: str = ""
    phrases: tuple[str, ...] = ()


def translate(query: str) -> Query:
    """Translate a query of at most 1000 characters; an InvalidQuery names the problem's place."""
    if not isinstance(query, str):
        raise InvalidQuery("A query is text.", next_step="Write a word.", query=repr(query))
    if len(query) > _MAX_CHARACTERS:
        raise InvalidQuery(
            f"The query has {len(query)} characters; {_MAX_CHARACTERS} are the most.",
            next_step="Write fewer words.",
            query=query[:_MAX_CHARACTERS],
        )
    if query.strip() == "*":
        return Query(None)
    tokens = _tokens(query)
    if sum(token.kind in ("phrase", "near") for token in tokens) > _MAX_TERMS:
        _refuse(query, None, f"it has more than {_MAX_TERMS} words", "Write fewer words.")
    expression = _Parser(query, tokens).parse() if tokens else ""
    if not expression:
        _refuse(query, None, "it has no word to look for", "Write a word, or * to list everything.")
    return Query(expression, tuple(phrase for token in tokens for phrase in token.phrases))


def _refuse(query: str, at: int | None, why: str, next_step: str) -> NoReturn:
    place = "" if at is None else f" at character {at + 1}"
    shown = repr(query) if at is None else f"{query[:at]!r} ▸ {query[at:]!r}"
    raise InvalidQuery(
        f"The query can't be read{place}: {why}: {shown}.",
        next_step=next_step,
        query=query,
        position=at,
    )


def _tokens(query: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(query):
        char = query[at]
        if char.isspace():
            at += 1
        elif char in "()":
            tokens.append(_Token("(" if char == "(" else ")", at))
            at += 1
        elif char == '"':
            found = _PHRASE.match(query, at)
            if found is None:
                _refuse(query, at, "the quote is never closed", "Close it, or leave it out.")
            phrase = found[1].replace('""', '"') + found[2]
            tokens.append(_Token("phrase", at, _phrase(phrase), (phrase,)))
            at = found.end()
        elif query.startswith("NEAR(", at):
            token, at = _near(query, at)
            tokens.append(token)
        elif field := _FIELD.match(query, at):
            tokens.append(_Token("field", at, field[1].lower()))
            at = field.end()
        else:
            found = _WORD.match(query, at)
            assert found is not None  # noqa: S101 - every other character begins a word
            word = found[0]
            if word in ("AND", "OR", "NOT"):
                tokens.append(_Token(word, at))  # type: ignore[arg-type]
            else:
                tokens.append(_Token("phrase", at, _phrase(_word(word)), (_word(word),)))
            at = found.end()
    return tokens


def _near(query: str, at: int) -> tuple[_Token, int]:
    """Read `NEAR(words and phrases, distance)`."""
    inside, end = "", at + len("NEAR(")
    while end < len(query) and query[end] != ")":
        found = _PHRASE.match(query, end)
        if found is None and query[end] in '"(':
            _refuse(query, end, "NEAR takes words and phrases alone", 'Write NEAR(a "b c", 5).')
        inside += found[0] if found else query[end]
        end = found.end() if found else end + 1
    if end == len(query):
        _refuse(query, at, "NEAR is never closed", "Close it: NEAR(a b, 5).")
    distance = _DISTANCE.search(inside)
    terms = inside[: distance.start()] if distance else inside
    phrases = tuple(
        found[1].replace('""', '"') + found[2]
        if (found := _PHRASE.fullmatch(one[0]))
        else _word(one[0])
        for one in re.finditer(rf"{_PHRASE.pattern}|{_WORD.pattern}", terms)
    )
    texts = [text for text in map(_phrase, phrases) if text]
    if not texts:
        return _Token("near", at), end + 1
    if len(texts) > _MAX_TERMS:
        _refuse(query, at, f"it has more than {_MAX_TERMS} words", "Write fewer words.")
    most = int(distance[1]) if distance else _NEAR_DISTANCE
    return _Token("near", at, f"NEAR({' '.join(texts)}, {most})", phrases), end + 1


def _word(word: str) -> str:
    """Return a bare word; of a canonical ref, its id."""
    return _REF.sub("", word, count=1)


def _phrase(text: str) -> str:
    """Return an FTS5 phrase; empty where it has neither a letter nor a digit."""
    text, is_prefix = text.removesuffix("*"), text.endswith("*")
    if not any(unicodedata.category(char)[0] in "LN" for char in text):
        return ""
    # What isn't printable separates words, as in the index; SQLite takes no lone surrogate.
    clean = replace_controls(text, " ")
    return f'"{clean.replace(chr(34), chr(34) * 2)}"' + (" *" if is_prefix else "")


class _Parser:
    """A parser in which OR binds least, then AND, also between adjacent words, then NOT."""

    def __init__(self, query: str, tokens: Sequence[_Token]) -> None:
        self._query = query
        self._tokens = tokens
        self._next = 0

    def parse(self) -> str:
        """Return the whole query as an FTS5 expression; empty where nothing can match."""
        expression = self._either(0)
        if self._next < len(self._tokens):
            self._refuse("nothing opened this parenthesis", "Remove it, or open it before.")
        return expression

    def _peek(self) -> _Kind | None:
        return self._tokens[self._next].kind if self._next < len(self._tokens) else None

    def _refuse(self, why: str, next_step: str) -> NoReturn:
        at = self._tokens[self._next].at if self._next < len(self._tokens) else len(self._query)
        _refuse(self._query, at, why, next_step)

    def _either(self, depth: int) -> str:
        parts = [self._all(depth)]
        while self._peek() == "OR":
            self._next += 1
            parts.append(self._all(depth))
        return _joined(" OR ", parts)

    def _all(self, depth: int) -> str:
        parts = [self._but(depth)]
        while (kind := self._peek()) not in (None, "OR", ")"):
            if kind == "AND":
                self._next += 1
            parts.append(self._but(depth))
        return _joined(" AND ", parts)

    def _but(self, depth: int) -> str:
        wanted = self._one(depth)
        unwanted: list[str] = []
        while self._peek() == "NOT":
            self._next += 1
            unwanted.append(self._one(depth))
        without = _joined(" OR ", unwanted)
        if not wanted and without:
            self._refuse("NOT has nothing on its left to take from", "Say first what to look for.")
        return f"({wanted} NOT {without})" if without else wanted

    def _one(self, depth: int) -> str:
        if depth > _MAX_DEPTH:
            self._refuse("it is nested too deeply", "Write it with fewer parentheses.")
        kind = self._peek()
        if kind in ("AND", "OR", "NOT"):
            self._refuse(f"{kind} needs a word on each side", f'Add one, or quote it: "{kind}".')
        if kind is None:
            self._refuse("a word is missing at its end", "Add one.")
        token = self._tokens[self._next]
        if kind == ")":
            self._refuse("there is nothing before this parenthesis", "Remove it.")
        self._next += 1
        if kind == "field":
            inner = self._one(depth + 1)
            return f"{token.text} : ({inner})" if inner else ""
        if kind == "(":
            inner = self._either(depth + 1)
            if self._peek() != ")":
                self._next = self._tokens.index(token)
                self._refuse("the parenthesis is never closed", "Close it.")
            self._next += 1
            return inner
        return token.text


def _joined(operator: str, parts: Sequence[str]) -> str:
    """Return the parts that can match, as one expression."""
    known = [part for part in parts if part]
    return f"({operator.join(known)})" if len(known) > 1 else "".join(known)


_PREFIX: Final = "rye.fetch."
_PATTERN: Final = re.compile(r"[A-Za-z0-9_.*-]+")
_MAX_PARTS: Final = 32
_FORMS: Final = (
    f"Write * or one of {', '.join(KIND_FOLDERS)}, or such as tool.acme.* for a folder with all "
    "below it, or tool.acme.report for one item."
)


@frozen
class Scope:
    """The items that a search looks through, as capability patterns."""

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
        """Return whether an item lies in it."""
        return allows(self.patterns, capability_of("fetch", kind, item_id))


def hint_for(scope: Scope, source: str, holds_any: Callable[[Scope], bool]) -> str:
    """Return a hint on the forms of scopes where no item lies in one; empty where one does."""
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
    """Read a scope, or a list of scopes, which are united; an InvalidQuery says what is wrong."""
    parts = [scope] if isinstance(scope, str) else scope
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        _refuse_scope(scope)
    if not parts or len(parts) > _MAX_PARTS:
        _refuse_scope(scope)
    return Scope(" ".join(parts), tuple(_capability_pattern(part.strip()) for part in parts))


def _capability_pattern(text: str) -> str:
    if text == "*":
        return f"{_PREFIX}*"
    bare = text.removeprefix(_PREFIX)
    kind, colon, item_id = bare.partition(":")
    if colon:
        bare = f"{kind}.{item_id.replace('/', '.')}" if item_id else kind
    kind, _, rest = bare.partition(".")
    if kind not in KIND_FOLDERS or not _PATTERN.fullmatch(bare):
        _refuse_scope(text)
    return f"{_PREFIX}{kind}.{rest or '*'}"


def _refuse_scope(scope: object) -> NoReturn:
    raise InvalidQuery(
        f"scope must specify a kind (e.g., rye.fetch.directive.*), not {scope!r}.",
        next_step=_FORMS,
        query=str(scope),
    )
