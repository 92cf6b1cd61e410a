"""Results of a search."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from ryecore.display.text import Rendered, StyledText, status_mark
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import Space

__all__ = ["Extent", "SearchResult", "SearchResults"]

Extent: TypeAlias = Literal["whole", "part", "name"]
"""How much of a file is indexed: a large file in part, and a binary file by its name."""

Copies = tuple[tuple[Path, Space], ...]


@frozen
class SearchResult:
    """One item that was found.

    Attributes:
        ref: Its reference.
        path: The file.
        space: Its space.
        title: Its title; the last part of its id where it has none.
        description: Its description.
        category: The folders of its id.
        tags: Its tags.
        preview: At most 200 characters around the words that were found.
        hits: Where in the preview those words begin and end.
        score: How well it matches; more is better. 0 for the query `*`.
        integrity: The content hash of a verified item; else why it isn't verified: `unsigned`,
            `changed`, `bad_signature`, `malformed`, `untrusted`, `revoked` or `unreadable`.
        is_verified: Whether its signature was verified.
        is_signed: Whether it has a signature.
        extent: How much of its text is searched: `whole`, `part` of a large file, or its `name`.
        shadows: The copies of this id in later spaces.
        shadowed_by: The copies in earlier spaces, which an execution would use instead.
        is_record: Whether it is the record of a thread: text that no author has signed. Its
            integrity is `attested` where this user's run key has signed it as it is, and else
            `unattested`.
    """

    ref: ItemRef
    path: Path
    space: Space
    title: str
    description: str
    category: str
    tags: tuple[str, ...]
    preview: str
    hits: tuple[tuple[int, int], ...]
    score: float
    integrity: str
    is_verified: bool
    is_signed: bool
    extent: Extent = "whole"
    shadows: Copies = ()
    shadowed_by: Copies = ()
    is_record: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return the result as a JSON-ready object."""
        return {
            "id": str(self.ref),
            "name": self.ref.id.rpartition("/")[2],
            "type": self.ref.kind,
            "title": self.title,
            "description": self.description,
            "preview": self.preview,
            "category": self.category,
            "tags": list(self.tags),
            "source": self.space.label,
            "path": str(self.path),
            "score": round(self.score, 4),
            "signed": self.is_signed,
            "indexed": self.extent,
            "verified": self.is_verified,
            "integrity": self.integrity,
            "record": self.is_record,
            "shadows": [_place(*copy) for copy in self.shadows],
            "shadowed_by": [_place(*copy) for copy in self.shadowed_by],
        }


def _place(path: Path, space: Space) -> dict[str, str]:
    return {"path": str(path), "space": space.label}


@frozen(repr=False)
class SearchResults(Rendered):
    """A page of results.

    Attributes:
        results: The page, the best first.
        total: The number of results in all.
        query: The query.
        scope: The scope, as it was written.
        source: The one space that was searched; `all` for every one.
        limit: The most results of a page.
        offset: The number of results before this page.
        leaves_out_records: Whether the project has records of threads that were not searched.
        hint: The forms of a scope, where no item lies in this one; else empty.
    """

    results: tuple[SearchResult, ...]
    total: int
    query: str
    scope: str
    source: str
    limit: int
    offset: int
    leaves_out_records: bool = False
    hint: str = ""

    @property
    def next_offset(self) -> int | None:
        """The offset of the next page; None where this is the last."""
        end = self.offset + self.limit  # a page may lack what changed while it was made
        return end if end < self.total else None

    def to_dict(self) -> dict[str, object]:
        """Return the response that models and MCP clients see."""
        document: dict[str, object] = {
            "status": "success",
            "mode": "query",
            "results": [result.to_dict() for result in self.results],
            "total": self.total,
            "query": self.query,
            "scope": self.scope,
            "source": self.source,
            "limit": self.limit,
            "offset": self.offset,
            "search_type": "keyword",
        }
        if self.leaves_out_records:
            document["records_left_out"] = True
        if self.hint:
            document["hint"] = self.hint
        return document

    def render(self) -> StyledText:
        """Return the page for a terminal or a notebook."""
        text = StyledText()
        for one in self.results:
            text.line(
                _mark(one),
                (str(one.ref), "id"),
                f"  {one.title}" if one.title != one.ref.id.rpartition("/")[2] else "",
                (f"  {one.space.label}", "dim"),
                ("  record of a thread" if one.is_record else "", "dim"),
                (f"  {one.integrity}" if _is_doubtful(one) else "", "warn"),
                ("  only its beginning is searched" if one.extent == "part" else "", "dim"),
            )
            if one.description:
                text.line(f"    {one.description}")
            if one.hits:
                text.line(("    ", ""), *_highlighted(one))
            for path, space in one.shadowed_by:
                text.line((f"    shadowed by {path} ({space.label})", "warn"))
            for path, space in one.shadows:
                text.line((f"    shadows {path} ({space.label})", "dim"))
        shown = f"{self.offset + 1} to {self.offset + len(self.results)}" if self.results else "0"
        following = f"; next page: --offset {self.next_offset}" if self.next_offset else ""
        text.line((f"{shown} of {self.total}{following}", "dim"))
        if self.hint:
            text.line((self.hint, "warn"))
        if self.leaves_out_records:
            text.line(("records of threads are left out; look through them: --records", "dim"))
        return text

    def __repr__(self) -> str:
        return f"SearchResults({self.query!r}, {len(self.results)} of {self.total})"


def _mark(one: SearchResult) -> tuple[str, str]:
    if one.is_verified:
        return status_mark("ok")
    return status_mark("warning") if _is_doubtful(one) else status_mark("note")


def _is_doubtful(one: SearchResult) -> bool:
    return not one.is_verified and not (one.is_record and one.integrity == "attested")


def _highlighted(one: SearchResult) -> Iterator[tuple[str, str]]:
    end = 0
    for first, last in one.hits:
        yield one.preview[end:first], "dim"
        yield one.preview[first:last], "strong"
        end = last
    yield one.preview[end:], "dim"
