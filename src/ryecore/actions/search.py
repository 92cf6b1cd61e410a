"""search: find items by what they are called, what they say of themselves and what they hold."""

import hashlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio.to_thread

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
from ryecore.items.signature import FileTypesReader
from ryecore.items.spaces import Space, Spaces
from ryecore.items.verification import VerifiedItem, Verifier
from ryecore.policy import CallContext, allows, capability_of
from ryecore.search.excerpt import beginning, excerpt
from ryecore.search.index import Found, SearchIndex, Shown
from ryecore.search.model import SearchResult, SearchResults
from ryecore.search.query import Query, translate
from ryecore.search.scope import parse_scope

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
        self, spaces: Spaces, folder: Path, verifier: Verifier, file_types: FileTypesReader
    ) -> None:
        self._verifier = verifier
        self._index = SearchIndex(spaces, folder, file_types)

    async def __call__(
        self,
        query: str,
        scope: str | Sequence[str],
        source: str | None,
        limit: int,
        offset: int,
        ctx: CallContext,
    ) -> SearchResults:
        """Search.

        Args:
            query: What to look for; `*` for everything.
            scope: Where: `*`, a kind, or such as `tool.acme.*`.
            source: The one space to look in; None for all.
            limit: How many results at most, 1 to 100.
            offset: How many to pass over.
            ctx: On whose behalf. A model finds only what it may fetch.

        Returns:
            The page.

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

            def find(query: Query) -> list[Found]:
                every = self._index.find(query, where.kinds, asked_ns, check)
                return [one for one in every if wanted(one)]

            def is_verified(one: Found) -> bool:
                check()
                return _integrity(one, verifier)[1]

            found = find(asked)
            if ctx.capabilities is not None:
                # Text that nobody vouches for is found by its name alone: else a query would tell
                # a model, word by word, what stands in a file that it can't fetch.
                named = [one for one in find(asked.of_names()) if not is_verified(one)]
                found = sorted([*filter(is_verified, found), *named], key=lambda one: -one.score)
            page = found[offset : offset + limit]
            shown = self._index.show(page)
            results: list[SearchResult] = []
            for one in page:
                check()
                if one.row in shown:  # it may have been indexed anew by another process
                    results.append(self._result(one, shown[one.row], asked, verifier, ctx))
            return SearchResults(
                tuple(results), len(found), query, where.text, source or "all", limit, offset
            )

        try:
            return await anyio.to_thread.run_sync(search, abandon_on_cancel=True)
        finally:
            stopped.set()  # a search that nobody waits for ends before its next file

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _result(
        self,
        found: Found,
        shown: Shown,
        asked: Query,
        verifier: Verifier,
        ctx: CallContext,
    ) -> SearchResult:
        source = found.source
        integrity, is_verified = _integrity(found, verifier)
        preview, hits = _preview(shown, asked)
        description, title = shown.description, shown.title
        if not is_verified and ctx.capabilities is not None:
            # Nobody vouches for this text, and a model may take it for an instruction.
            title, description, preview, hits = source.ref.id.rpartition("/")[2], "", "", ()
        copies = self._index.copies(source.ref)
        place = next(
            (at for at, (path, _) in enumerate(copies) if path == source.path), len(copies)
        )
        return SearchResult(
            source.ref,
            source.path,
            source.space,
            title,
            description,
            shown.category,
            shown.tags if is_verified or ctx.capabilities is None else (),
            preview,
            hits,
            found.score,
            integrity,
            is_verified,
            integrity not in ("unsigned", "malformed", "unreadable"),
            found.extent,
            _others(copies[place + 1 :], source.space),
            _others(copies[:place], source.space),
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


def _integrity(found: Found, verifier: Verifier) -> tuple[str, bool]:
    try:
        item: VerifiedItem = verifier.verify(found.source)
    except IntegrityError as refusal:
        return next(name for kind, name in _REASONS if isinstance(refusal, kind)), False
    if found.content_hash and hashlib.sha256(item.content).hexdigest() != found.content_hash:
        return "changed", False  # since it was indexed: what is shown of it is not what verified
    return item.integrity, True


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(
            f"{name} is {value!r}, no whole number from {least} to {most}.",
            next_step=f"Pass one, such as {least or 10}.",
        )
