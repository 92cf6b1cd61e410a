"""The search index, updated from the files at each search, which ranks the hits.

A search reads the stats of all files, as one fingerprint a folder. Where that has changed, it walks
the folder: a file whose stat has changed is read, and one whose content has changed is indexed
again. The index serves to find items; it is never trusted.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ryecore.frozen import frozen
from ryecore.items.description import describe
from ryecore.items.refs import ItemRef
from ryecore.items.signature import CommentForm, FileTypesReader, comment_form, split_content
from ryecore.items.spaces import ItemSource, Space, Spaces
from ryecore.lillux.digests import read_digest
from ryecore.search.excerpt import plain
from ryecore.search.model import Extent
from ryecore.search.query import FIELDS, Query
from ryecore.search.store import Connection, IndexStore, Store
from ryecore.search.walk import GRAIN_NS, ItemFile, Place, places

__all__ = ["WEIGHTS", "IndexHit", "IndexedTexts", "SearchIndex"]

_MAX_INDEXED_BYTES: Final = 4 * 1024 * 1024
_MAX_INDEXED: Final = 64 * 1024
"""How many characters of a file's text are indexed, and how many of its bytes are parsed for its
description. SQLite's time grows faster than the hits, and a parser takes seconds for a megabyte."""

_MAX_DESCRIPTION_CHARS: Final = 2000
_FILES_AT_ONCE: Final = 200
WEIGHTS: Final = (3.0, 3.0, 2.0, 1.5, 1.5, 1.0)
"""The weight of a word in each of `FIELDS`."""


@frozen
class IndexHit:
    """An item that matches a query.

    `source` lacks the items that it shadows. `content_hash` is the SHA-256 (hex) of the whole file
    when it was indexed; empty where it was indexed only by its name.
    """

    row: int
    source: ItemSource
    content_hash: str
    extent: Extent
    score: float


@frozen
class IndexedTexts:
    """The texts of an item for display."""

    title: str
    description: str
    category: str
    tags: tuple[str, ...]
    text: str


class SearchIndex:
    """The index of the items of one project and of its user and system spaces.

    `folder` holds indexes in the user's cache. With `of_exports`, it is the index of exports of
    threads, which a search of items leaves out.
    """

    def __init__(
        self,
        spaces: Spaces,
        folder: Path,
        file_types: FileTypesReader,
        *,
        of_exports: bool = False,
    ) -> None:
        self._spaces = {space.label: space for space in spaces}
        self._folders: dict[tuple[str, str], Path] = {}
        self._file_types = file_types
        self._of_exports = of_exports
        self._store = IndexStore(spaces, folder, of_exports=of_exports)
        self._walked: tuple[Store | None, dict[str, int]] = (None, {})

    def find(
        self,
        query: Query,
        kinds: Sequence[str],
        asked_ns: int | None = None,
        check: Callable[[], object] = lambda: None,
    ) -> list[IndexHit]:
        """Return the items that match a query, the best first.

        `asked_ns` is the time of the request (`time.monotonic_ns`), by default now: of concurrent
        searches, one walks the folders for all. `check` is called between files; its exception ends
        the search. A ConfigError says that this Python's SQLite can't search text.
        """
        since_ns = time.monotonic_ns() if asked_ns is None else asked_ns

        def ask(store: Store) -> list[IndexHit]:
            self._refresh(store, kinds, since_ns, check)
            return self._find(store, query.match, kinds)

        return self._store.use(ask)

    def _refresh(
        self, store: Store, kinds: Sequence[str], since_ns: int, check: Callable[[], object]
    ) -> None:
        """Update the index from the files, unless that was done since."""
        if self._walked[0] is not store:
            self._walked = (store, {})
        walked = self._walked[1]
        stale = [kind for kind in kinds if walked.get(kind, -1) < since_ns]
        if not stale:
            return
        begun_ns = time.monotonic_ns()
        file_types = self._file_types()
        indexed = {
            (row["space"], row["kind"]): row["fingerprint"]
            for row in store.read("SELECT space, kind, fingerprint FROM places")
        }
        for place in places(self._spaces.values(), stale, file_types, of_exports=self._of_exports):
            fingerprint = place.fingerprint()  # before the walk, so that none stands for too much
            if fingerprint is None or indexed.get((place.space.label, place.kind)) != fingerprint:
                _refresh(store, place, fingerprint, file_types, check)
        walked.update(dict.fromkeys(stale, begun_ns))

    def _find(self, store: Store, match: str | None, kinds: Sequence[str]) -> list[IndexHit]:
        weights = ", ".join(map(str, WEIGHTS))
        marks = ", ".join("?" * len(kinds))
        columns = "files.id, space, kind, item_id, relative, hash, extent"
        if match is None:
            query = f"SELECT {columns}, 0.0 AS score FROM files WHERE kind IN ({marks})"  # noqa: S608
            rows = store.read(query, kinds)
        else:
            query = (
                f"SELECT {columns}, -bm25(items, {weights}) AS score FROM items"  # noqa: S608
                # CROSS: the words are looked up first, not each file's among all files.
                f" CROSS JOIN files ON files.id = items.rowid"
                f" WHERE items MATCH ? AND kind IN ({marks})"
            )
            rows = store.read(query, (match, *kinds))
        order = list(self._spaces)
        found = [
            IndexHit(
                row["id"],
                self._source(row["space"], row["kind"], row["item_id"], row["relative"]),
                row["hash"],
                row["extent"],
                row["score"],
            )
            for row in rows
        ]
        found.sort(
            key=lambda one: (
                -one.score,
                str(one.source.ref),
                order.index(one.source.space.label),
                one.source.relative,
            )
        )
        return found

    def show(self, found: Sequence[IndexHit]) -> dict[int, IndexedTexts]:
        """Return the texts of these items, by their rows."""
        marks = ", ".join("?" * len(found))
        query = (
            "SELECT rowid, title, description, category, tags, content"  # noqa: S608
            f" FROM items WHERE rowid IN ({marks})"
        )
        rows = [one.row for one in found]
        return self._store.use(
            lambda store: {
                row["rowid"]: IndexedTexts(
                    row["title"],
                    row["description"],
                    row["category"],
                    tuple(row["tags"].split("\n")) if row["tags"] else (),
                    row["content"],
                )
                for row in store.read(query, rows)
            }
        )

    def copies(self, ref: ItemRef) -> tuple[tuple[Path, Space], ...]:
        """Return the files of an id, in the order of the spaces."""
        rows = self._store.use(
            lambda store: store.read(
                "SELECT space, relative FROM files WHERE kind = ? AND item_id = ?",
                (ref.kind, ref.id),
            )
        )
        order = list(self._spaces)
        rows.sort(key=lambda row: (order.index(row["space"]), row["relative"]))
        spaces = [self._spaces[row["space"]] for row in rows]
        return tuple(
            (space.folder(ref.kind) / row["relative"], space)
            for row, space in zip(rows, spaces, strict=True)
        )

    def _source(self, label: str, kind: str, item_id: str, relative: str) -> ItemSource:
        space = self._spaces[label]
        folder = self._folders.get((label, kind))
        if folder is None:  # made once, as a query may match every item
            folder = self._folders[label, kind] = space.folder(kind)
        return ItemSource(ItemRef(kind, item_id), folder / relative, space, relative)

    def close(self) -> None:
        """Close the index's file."""
        self._store.close()


@frozen
class _Entry:
    """The rows of one file."""

    file: ItemFile
    stat: str
    hash: str
    extent: Extent
    fields: tuple[str, ...]


_STATS: Final = "SELECT id, relative, stat FROM files WHERE space = ? AND kind = ?"


def _refresh(
    store: Store,
    place: Place,
    fingerprint: str | None,
    file_types: Mapping[str, CommentForm],
    check: Callable[[], object],
) -> None:
    """Update the index from the files of a place."""
    key = (place.space.label, place.kind)
    seen = {file.relative: file for file in place.walk()}
    known = {row["relative"]: row for row in store.read(_STATS, key)}
    changed = [
        file
        for relative, file in seen.items()
        if relative not in known or known[relative]["stat"] != _stat_text(file)
    ]
    for start in range(0, len(changed), _FILES_AT_ONCE):
        entries: list[_Entry] = []
        for file in changed[start : start + _FILES_AT_ONCE]:
            check()
            if (entry := _read(file, file_types)) is not None:
                entries.append(entry)
        with store.write() as connection:
            _forget_fingerprint(connection.execute, key)
            for entry in entries:
                _put(connection, key, entry)
    gone = [row["id"] for relative, row in known.items() if relative not in seen]
    if gone:
        with store.write() as connection:
            _forget_fingerprint(connection.execute, key)
            _forget(connection.execute, gone)
    if fingerprint is not None:
        _note_fingerprint(store, key, fingerprint, seen)


def _put(connection: Connection, key: tuple[str, str], entry: _Entry) -> None:
    """Index a file as it was read."""
    file = entry.file
    row = connection.execute(
        "SELECT id, hash FROM files WHERE space = ? AND kind = ? AND relative = ?",
        (*key, file.relative),
    ).fetchone()
    if row is not None and entry.hash and row["hash"] == entry.hash:
        connection.execute("UPDATE files SET stat = ? WHERE id = ?", (entry.stat, row["id"]))
        return
    if row is not None:
        _forget(connection.execute, [row["id"]])
    inserted = connection.execute(
        "INSERT INTO files (space, kind, relative, item_id, stat, hash, extent)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*key, file.relative, file.item_id, entry.stat, entry.hash, entry.extent),
    )
    connection.execute(
        f"INSERT INTO items (rowid, {', '.join(FIELDS)})"  # noqa: S608
        f" VALUES (?{', ?' * len(FIELDS)})",
        (inserted.lastrowid, *entry.fields),
    )


def _note_fingerprint(
    store: Store, key: tuple[str, str], fingerprint: str, seen: Mapping[str, ItemFile]
) -> None:
    """Note that a place is indexed as it was found, unless something was left out.

    That is a file that changed just now, and what another process has indexed meanwhile.
    """
    found = {relative: _stat_text(file) for relative, file in seen.items()}
    if {row["relative"]: row["stat"] for row in store.read(_STATS, key)} != found:
        return  # asked before, so that such a search writes nothing
    with store.write() as connection:
        rows = connection.execute(_STATS, key)
        if {row["relative"]: row["stat"] for row in rows} == found:
            connection.execute(
                "INSERT OR REPLACE INTO places (space, kind, fingerprint) VALUES (?, ?, ?)",
                (*key, fingerprint),
            )


def _forget_fingerprint(execute: Callable[..., object], key: tuple[str, str]) -> None:
    execute("DELETE FROM places WHERE space = ? AND kind = ?", key)


def _forget(execute: Callable[..., object], rows: Iterable[int]) -> None:
    for row in rows:
        execute("DELETE FROM items WHERE rowid = ?", (row,))
        execute("DELETE FROM files WHERE id = ?", (row,))


def _stat_text(file: ItemFile) -> str:
    return ":".join(map(str, file.stat))


def _read(file: ItemFile, file_types: Mapping[str, CommentForm]) -> _Entry | None:
    """Read a file to be indexed; None where it no longer exists.

    Its stat was read before, so that a change meanwhile is noticed by the next search.
    """
    settled = time.time_ns() - file.changed_ns > GRAIN_NS
    content, digest = b"", ""
    if file.size_bytes <= _MAX_INDEXED_BYTES:
        try:
            content, digest = read_digest(str(file.path), max_bytes=_MAX_INDEXED_BYTES)
        except FileNotFoundError:
            return None
        except OSError:
            pass  # it can't be read, or has grown: only its name is indexed
    stat = _stat_text(file) if settled else ""
    text = _text_of(file, content, file_types) if digest else None
    if text is None:
        return _Entry(file, stat, digest, "name", _fields(file, b"", ""))
    is_whole = max(len(text), len(content)) <= _MAX_INDEXED
    return _Entry(file, stat, digest, "whole" if is_whole else "part", _fields(file, content, text))


def _text_of(file: ItemFile, content: bytes, file_types: Mapping[str, CommentForm]) -> str | None:
    """Return a file's text without its signature; None for config, which may hold secrets."""
    if file.kind == "config":
        return None
    parts = split_content(content, comment_form(file.path.suffix, file_types))
    try:
        return (parts.before + parts.after).decode("utf-8")
    except UnicodeDecodeError:
        return None


def _fields(file: ItemFile, content: bytes, text: str) -> tuple[str, ...]:
    """Return the text of each of `FIELDS`."""
    description = describe(file.kind, file.relative, content[:_MAX_INDEXED])
    return (
        file.item_id,
        plain(description.title[:_MAX_DESCRIPTION_CHARS]),
        plain(description.description[:_MAX_DESCRIPTION_CHARS]),
        plain(description.category),
        "\n".join(map(plain, description.tags))[:_MAX_DESCRIPTION_CHARS],
        plain(text[:_MAX_INDEXED]),
    )
