"""The search action: find items by their names, their descriptions and their text."""

import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from attrs import evolve

from ryecore.errors import (
    BadSignature,
    CallCancelled,
    ContentChanged,
    InputError,
    IntegrityError,
    MalformedSignature,
    RevokedKey,
    UnsignedItem,
    UntrustedKey,
)
from ryecore.frozen import frozen
from ryecore.items.refs import EXPORT_FOLDER, is_export
from ryecore.items.signature import FileTypesReader
from ryecore.items.spaces import Space, Spaces
from ryecore.lillux.event_loop import run_in_thread
from ryecore.policy import CallContext, allows, capability_of
from ryecore.search.excerpt import beginning, excerpt
from ryecore.search.index import WEIGHTS, IndexedTexts, IndexHit, SearchIndex
from ryecore.search.model import SearchResult, SearchResults
from ryecore.search.query import FIELDS, Query, Scope, hint_for, parse_scope, translate
from ryecore.state.exports import AttestedExport, ExportVerifier

__all__ = ["SearchAction"]

_MAX_LIMIT: Final = 100
_REASONS: Final[Sequence[tuple[type[IntegrityError], str]]] = (
    (UnsignedItem, "unsigned"),
    (MalformedSignature, "malformed"),
    (ContentChanged, "changed"),
    (BadSignature, "bad_signature"),
    (RevokedKey, "revoked"),
    (UntrustedKey, "untrusted"),
    (IntegrityError, "unreadable"),
)


class SearchAction:
    """The search action. Nothing runs, and each result is verified as it is found.

    `folder` holds the indexes, in the user's cache.
    """

    def __init__(
        self, spaces: Spaces, folder: Path, verifier: ExportVerifier, file_types: FileTypesReader
    ) -> None:
        self._verifier = verifier
        self._items = SearchIndex(spaces, folder, file_types)
        # There may be ten thousand exports, so they are read only for a search of records.
        self._exports = SearchIndex(spaces, folder, file_types, of_exports=True)
        self._export_folder = spaces.project.folder("knowledge") / EXPORT_FOLDER

    async def __call__(
        self,
        query: str,
        scope: str | Sequence[str],
        source: str | None,
        limit: int,
        offset: int,
        ctx: CallContext,
        *,
        records: bool = False,
    ) -> SearchResults:
        """Search items; records of threads come last. A model finds what it may fetch.

        Records are searched with `records`, and where the scope names their folder.
        """
        request = _request(query, scope, source, limit, offset, ctx, records=records)
        search = _Search(request, self._items, self._exports, self._verifier)
        try:
            page = await run_in_thread(search.page, abandon_on_cancel=True)
        finally:
            search.stop()
        return SearchResults(
            page.results,
            page.total,
            query,
            scope=request.scope.text,
            source=source or "all",
            limit=limit,
            offset=offset,
            leaves_out_records=request.leaves_out_records and self._export_folder.is_dir(),
            hint=page.hint,
        )

    def close(self) -> None:
        """Close the index."""
        self._items.close()
        self._exports.close()


@frozen
class _Request:
    """A search whose arguments were checked.

    `asked_ns` is the time of the request, by the monotonic clock: files changed before it are read.
    """

    query: Query
    scope: Scope
    source: str | None
    limit: int
    offset: int
    ctx: CallContext
    with_exports: bool
    asked_ns: int

    def wants(self, found: IndexHit) -> bool:
        """Return whether an item is in scope, and the caller may fetch it.

        An item that may not be fetched isn't counted either, so that a model doesn't learn of it.
        """
        ref, space = found.source.ref, found.source.space
        granted = self.ctx.capabilities
        return (
            self.source in (None, space.name)
            and self.scope.holds(ref.kind, ref.id)
            and (granted is None or allows(granted, capability_of("fetch", ref.kind, ref.id)))
        )

    @property
    def leaves_out_records(self) -> bool:
        """Whether records of threads could match, and are not searched."""
        return (
            self.ctx.capabilities is None
            and not self.with_exports
            and "knowledge" in self.scope.kinds
            and self.source in (None, "project")
        )


def _request(
    query: str,
    scope: str | Sequence[str],
    source: str | None,
    limit: int,
    offset: int,
    ctx: CallContext,
    *,
    records: bool,
) -> _Request:
    """Check the arguments of a search."""
    translated, parsed = translate(query), parse_scope(scope)
    if source not in (None, "all", "project", "user", "system"):
        raise InputError(
            f"Unknown source {source!r}.",
            next_step='Write "project", "user", "system" or "all".',
        )
    _check_number("limit", limit, 1, _MAX_LIMIT)
    _check_number("offset", offset, 0, 2**31)
    if not isinstance(records, bool):
        raise InputError(
            f"records is {records!r}.",
            next_step="Pass True to look through records of threads.",
        )
    return _Request(
        translated,
        parsed,
        None if source == "all" else source,
        limit,
        offset,
        ctx,
        with_exports="knowledge" in parsed.kinds and (records or parsed.names_exports),
        asked_ns=time.monotonic_ns(),
    )


@frozen
class _Page:
    """The results of one page, the number of all, and a hint where there are none."""

    results: tuple[SearchResult, ...]
    total: int
    hint: str


class _Search:
    """One search, in a worker thread."""

    def __init__(
        self,
        request: _Request,
        items: SearchIndex,
        exports: SearchIndex,
        verifier: ExportVerifier,
    ) -> None:
        self._request = request
        self._items = items
        self._exports = exports
        self._verifier = verifier
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Stop the search before its next file. Called when its result is no longer awaited."""
        self._stopped.set()

    def page(self) -> _Page:
        """Find the items, then the records, and describe those of the page."""
        request = self._request
        verifier = self._verifier.for_batch()
        items = self._fitting(self._items, request.scope.kinds, verifier)
        exports = (
            self._fitting(self._exports, ("knowledge",), verifier) if request.with_exports else []
        )
        begin, end = request.offset, request.offset + request.limit
        exports_begin, exports_end = (max(at - len(items), 0) for at in (begin, end))
        results = (
            *self._described(self._items, items[begin:end], verifier),
            *self._described(self._exports, exports[exports_begin:exports_end], verifier),
        )
        total = len(items) + len(exports)
        hint = "" if total else hint_for(request.scope, request.source or "all", self._holds_any)
        return _Page(results, total, hint)

    def _holds_any(self, scope: Scope) -> bool:
        """Return whether any item lies in a scope that the caller may fetch."""
        request, everything = evolve(self._request, scope=scope), translate("*")
        indexes = (self._items, self._exports) if request.with_exports else (self._items,)
        return any(
            request.wants(one)
            for index in indexes
            for one in index.find(everything, scope.kinds, request.asked_ns, self._check)
        )

    def _fitting(
        self, index: SearchIndex, kinds: Sequence[str], verifier: ExportVerifier
    ) -> list[IndexHit]:
        """Return the items that match the request, the best first.

        An item that a model can't read is found only by its name: otherwise queries would reveal
        its text, word by word. Nor are its results ranked by how rare a word is, which depends on
        all files, but by the fields that match.
        """
        query = self._request.query
        found = self._found(index, query, kinds)
        if self._request.ctx.capabilities is None:
            return found
        readable = [one for one in found if self._is_readable(one, verifier)]
        by_name = self._found(index, query.of_names(), kinds)
        unreadable = [one for one in by_name if not self._is_readable(one, verifier)]
        scores: defaultdict[int, float] = defaultdict(float)
        for field, weight in zip(FIELDS, WEIGHTS, strict=True) if query.match is not None else ():
            for one in (
                by_name if field == "name" else self._found(index, query.in_field(field), kinds)
            ):
                scores[one.row] += weight
        hidden = {one.row for one in unreadable}
        ranked = [
            evolve(one, score=WEIGHTS[0] if one.row in hidden else scores[one.row])
            for one in (*readable, *unreadable)
        ]
        return sorted(
            ranked, key=lambda one: (-one.score, str(one.source.ref), str(one.source.path))
        )

    def _found(self, index: SearchIndex, query: Query, kinds: Sequence[str]) -> list[IndexHit]:
        found = index.find(query, kinds, self._request.asked_ns, self._check)
        return [one for one in found if self._request.wants(one)]

    def _is_readable(self, found: IndexHit, verifier: ExportVerifier) -> bool:
        self._check()
        return _integrity(found, verifier).may_be_read

    def _described(
        self, index: SearchIndex, found: Sequence[IndexHit], verifier: ExportVerifier
    ) -> Iterator[SearchResult]:
        """Yield a result for each item that another process hasn't reindexed meanwhile."""
        shown = index.show(found)
        for one in found:
            self._check()
            if one.row in shown:
                row, request = shown[one.row], self._request
                yield _result(index, one, row, request.query, verifier, request.ctx)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise CallCancelled("The search was cancelled.")


def _result(
    index: SearchIndex,
    found: IndexHit,
    shown: IndexedTexts,
    query: Query,
    verifier: ExportVerifier,
    ctx: CallContext,
) -> SearchResult:
    source = found.source
    standing = _integrity(found, verifier)
    is_shown = standing.may_be_read or ctx.capabilities is None
    preview, hits = _preview(shown, query)
    description, title = shown.description, shown.title
    if not is_shown:
        # The text can't be fetched, and a model may take it for an instruction.
        title, description, preview, hits = source.ref.id.rpartition("/")[2], "", "", ()
    copies = index.copies(source.ref)
    place = next((at for at, (path, _) in enumerate(copies) if path == source.path), len(copies))
    return SearchResult(
        source.ref,
        source.path,
        source.space,
        title,
        description,
        shown.category,
        shown.tags if is_shown else (),
        preview,
        hits,
        found.score,
        standing.integrity,
        standing.is_verified,
        standing.is_signed,
        found.extent,
        _others(copies[place + 1 :], source.space),
        _others(copies[:place], source.space),
        standing.is_record,
    )


def _preview(shown: IndexedTexts, query: Query) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the matching piece of the text or the description; otherwise the text's beginning."""
    for text in (shown.text, shown.description):
        preview, hits = excerpt(text, query.phrases)
        if hits:
            return preview, hits
    return beginning(shown.description or shown.text), ()


def _others(copies: tuple[tuple[Path, Space], ...], space: Space) -> tuple[tuple[Path, Space], ...]:
    """Return the copies in other spaces: two files of one id in one space shadow nothing."""
    return tuple(copy for copy in copies if copy[1] != space)


@frozen
class _Standing:
    """The verification of a found file at this moment.

    `integrity` is the content hash of a verified file, `attested` for a proved record, or else the
    reason why verification failed; `may_be_read` is whether it can be fetched as it was indexed.
    """

    integrity: str
    is_verified: bool
    is_record: bool
    may_be_read: bool

    @property
    def is_signed(self) -> bool:
        """Whether it has an author's signature at all."""
        return not self.is_record and self.integrity not in ("unsigned", "malformed", "unreadable")


def _integrity(found: IndexHit, verifier: ExportVerifier) -> _Standing:
    stands_among_exports = found.source.space.name == "project" and is_export(
        found.source.ref.kind, found.source.relative
    )
    try:
        item = verifier.verify(found.source)
    except IntegrityError as refusal:
        if stands_among_exports:
            return _Standing("unattested", False, True, False)
        reason = next(name for kind, name in _REASONS if isinstance(refusal, kind))
        return _Standing(reason, False, False, False)
    is_record = isinstance(item, AttestedExport)
    if found.content_hash and hashlib.sha256(item.content).hexdigest() != found.content_hash:
        # Changed since it was indexed: the indexed text is not the verified one.
        return _Standing("unattested" if is_record else "changed", False, is_record, False)
    if is_record:
        return _Standing("attested", False, True, True)
    return _Standing(item.integrity, True, False, True)


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(
            f"{name} must be a whole number from {least} to {most}, and is {value!r}.",
            next_step=f"Pass one, such as {least or 10}.",
        )
