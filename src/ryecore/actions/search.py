"""search: find items by what they are called, what they say of themselves and what they hold."""

import hashlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio.to_thread
from attrs import frozen

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
from ryecore.items.exports import EXPORT_FOLDER, is_export
from ryecore.items.signature import FileTypesReader
from ryecore.items.spaces import Space, Spaces
from ryecore.policy import CallContext, allows, capability_of
from ryecore.search.excerpt import beginning, excerpt
from ryecore.search.index import Found, SearchIndex, Shown
from ryecore.search.model import SearchResult, SearchResults
from ryecore.search.query import Query, translate
from ryecore.search.scope import parse_scope
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
    """Finds items; nothing runs, and what is shown was verified just now.

    Args:
        spaces: Where items stand.
        folder: Where indexes are kept, in the user's cache.
        verifier: Verifies what is shown.
        file_types: The comment forms that signed runtimes add.
    """

    def __init__(
        self, spaces: Spaces, folder: Path, verifier: ExportVerifier, file_types: FileTypesReader
    ) -> None:
        self._verifier = verifier
        self._items = SearchIndex(spaces, folder, file_types)
        # There may be ten thousand: they are read where they are asked for, and not before.
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
        """Search.

        Args:
            query: What to look for; `*` for everything.
            scope: Where: `*`, a kind, or such as `tool.acme.*`.
            source: The one space to look in; None for all.
            limit: How many results at most, 1 to 100.
            offset: How many to pass over.
            ctx: On whose behalf. A model finds only what it may fetch.
            records: Whether to look through the records of threads, too. A scope that names their
                folder does, without it.

        Returns:
            The page; records stand behind all items.

        Raises:
            InputError: The query, the scope or a number can't be used.
            ConfigError: This Python's SQLite can't search text.
        """
        asked = translate(query)
        where = parse_scope(scope)
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
        with_exports = "knowledge" in where.kinds and (records or where.names_exports)
        asked_ns = time.monotonic_ns()

        def wanted(found: Found) -> bool:
            ref, space = found.source.ref, found.source.space
            return (
                source in (None, "all", space.name)
                and where.holds(ref.kind, ref.id)
                # Before anything is counted: a model doesn't learn what it may not fetch.
                and (
                    ctx.capabilities is None
                    or allows(ctx.capabilities, capability_of("fetch", ref.kind, ref.id))
                )
            )

        stopped = threading.Event()

        def check() -> None:
            if stopped.is_set():
                raise CallCancelled("The search was cancelled.")

        def search() -> SearchResults:
            verifier = self._verifier.for_batch()

            def find_in(index: SearchIndex, query: Query, kinds: Sequence[str]) -> list[Found]:
                found = index.find(query, kinds, asked_ns, check)
                return [one for one in found if wanted(one)]

            def is_readable(one: Found) -> bool:
                check()
                return _integrity(one, verifier).may_be_read

            def look_through(index: SearchIndex, kinds: Sequence[str]) -> list[Found]:
                found = find_in(index, asked, kinds)
                if ctx.capabilities is None:
                    return found
                # Text that it can't fetch, a model finds by the name alone: else a query would
                # tell it, word by word, what stands there.
                names = find_in(index, asked.of_names(), kinds)
                named = [one for one in names if not is_readable(one)]
                return sorted([*filter(is_readable, found), *named], key=lambda one: -one.score)

            items = look_through(self._items, where.kinds)
            exports = look_through(self._exports, ("knowledge",)) if with_exports else []
            end = offset + limit
            pages = (
                (self._items, items[offset:end]),
                (self._exports, exports[max(offset - len(items), 0) : max(end - len(items), 0)]),
            )
            results: list[SearchResult] = []
            for index, page in pages:
                shown = index.show(page)
                for one in page:
                    check()
                    if one.row in shown:  # it may have been indexed anew by another process
                        result = _result(index, one, shown[one.row], asked, verifier, ctx)
                        results.append(result)
            return SearchResults(
                tuple(results),
                len(items) + len(exports),
                query,
                where.text,
                source or "all",
                limit,
                offset,
                ctx.capabilities is None
                and not with_exports
                and "knowledge" in where.kinds
                and source in (None, "all", "project")
                and self._export_folder.is_dir(),
            )

        try:
            return await anyio.to_thread.run_sync(search, abandon_on_cancel=True)
        finally:
            stopped.set()  # a search that nobody waits for ends before its next file

    def close(self) -> None:
        """Close the index."""
        self._items.close()
        self._exports.close()


def _result(
    index: SearchIndex,
    found: Found,
    shown: Shown,
    asked: Query,
    verifier: ExportVerifier,
    ctx: CallContext,
) -> SearchResult:
    source = found.source
    standing = _integrity(found, verifier)
    is_shown = standing.may_be_read or ctx.capabilities is None
    preview, hits = _preview(shown, asked)
    description, title = shown.description, shown.title
    if not is_shown:
        # It can't be fetched, and a model may take it for an instruction.
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


def _preview(shown: Shown, asked: Query) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The piece of the text that fits; else of the description; else what it begins with."""
    for text in (shown.text, shown.description):
        preview, hits = excerpt(text, asked.phrases)
        if hits:
            return preview, hits
    return beginning(shown.description or shown.text), ()


def _others(copies: tuple[tuple[Path, Space], ...], space: Space) -> tuple[tuple[Path, Space], ...]:
    """The copies in other spaces: two files of one id in one space shadow nothing."""
    return tuple(copy for copy in copies if copy[1] != space)


@frozen
class _Standing:
    """What vouches for a file that was found, just now.

    Attributes:
        integrity: The content hash of what verified; else `attested` for a record that holds, or
            why it doesn't verify.
        is_verified: Whether a trusted author's signature holds.
        is_record: Whether it is the record of a thread.
        may_be_read: Whether it can be fetched as it was indexed.
    """

    integrity: str
    is_verified: bool
    is_record: bool
    may_be_read: bool

    @property
    def is_signed(self) -> bool:
        """Whether it bears an author's signature at all."""
        return not self.is_record and self.integrity not in ("unsigned", "malformed", "unreadable")


def _integrity(found: Found, verifier: ExportVerifier) -> _Standing:
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
        # Since it was indexed: what is shown of it is not what verified.
        return _Standing("unattested" if is_record else "changed", False, is_record, False)
    if is_record:
        return _Standing("attested", False, True, True)
    return _Standing(item.integrity, True, False, True)


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(
            f"{name} is {value!r}, no whole number from {least} to {most}.",
            next_step=f"Pass one, such as {least or 10}.",
        )
