"""Cases: what is stored comes back unchanged; names, lists, spaces and pruning."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from ryecore.errors import InputError, StoreError
from ryecore.state.object_store import ObjectStore, prune_objects
from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.objects.bench import (
    ObjectCases,
    contents_of,
    digest_of,
    names_in,
    object_case,
    parts_of,
    refuses,
)

__all__ = ["ContentCases"]

_MIB: Final = 1024 * 1024
_SIZES: Final = (0, 1, 1000, _MIB - 1, _MIB, _MIB + 1, 5 * _MIB + 3)
_MANY: Final = 1000
_UNKNOWN: Final = digest_of(b"never stored")
_HOUR_S: Final = 3600


class ContentCases(ObjectCases):
    """What is stored comes back unchanged; names, lists, spaces and pruning."""

    @object_case
    def test_content_comes_back(self, store: ObjectStore, place: Path) -> None:
        """Empty, small and large content is read as it was stored, whole and in chunks."""
        for seed, size in enumerate(_SIZES):
            content = contents_of(seed, size)
            name = store.put(content, sha256=digest_of(content))
            equal(name, digest_of(content), "the name")
            equal(store.get(name) == content, True, f"that {size} bytes are the same")
            chunks = [*store.read(name)]
            equal(b"".join(chunks) == content, True, f"that {size} bytes in chunks are the same")
            check(all(len(one) <= _MIB for one in chunks), "A chunk is larger than 1 MiB.")
        with self.open_store(place) as other:
            equal(names_in(other), names_in(store), "what another opening of the store lists")

    @object_case
    def test_chunks_make_the_same_object(self, store: ObjectStore, place: Path) -> None:
        """Content that comes in chunks has the name of the whole, and is stored once."""
        for size in (0, 1000, 5 * _MIB + 3):
            content = contents_of(7, size)
            for part_size in (64_000, 3 * _MIB):
                name = store.put(parts_of(content, part_size))
                equal(name, store.put(content), "the name")
            equal(store.get(name) == content, True, f"that {size} bytes are the same")
        equal(len(names_in(store)), 3, "how many objects there are")

    @object_case
    def test_other_content_is_refused(self, store: ObjectStore, place: Path) -> None:
        """Content that hasn't the digest it should have is refused, and nothing is stored."""
        right, wrong = contents_of(1, 9 * _MIB), contents_of(2, 9 * _MIB)
        for content in (wrong, right[:-1], b""):
            for given in (content, parts_of(content, _MIB)):
                error = refuses(StoreError, partial(store.put, given, sha256=digest_of(right)))
                check(bool(error.next_step), "The refusal names no next step.")
        equal(names_in(store), [], "what is stored")
        equal(store.missing([digest_of(right)]), {digest_of(right)}, "what is missing")

    @object_case
    def test_names_are_digests(self, store: ObjectStore, place: Path) -> None:
        """What isn't a SHA-256 in lower-case hex is refused, and leads to no file."""
        for name in ("", "abc", "../../etc/passwd", _UNKNOWN.upper(), f"{_UNKNOWN}\n", "ab/" * 21):
            for call in (
                lambda name=name: store.get(name),
                lambda name=name: [*store.read(name)],
                lambda name=name: store.missing([name]),
                lambda name=name: store.delete([name]),
                lambda name=name: store.put(b"x", sha256=name),
            ):
                refuses(StoreError, call)
        equal(names_in(store), [], "what is stored")

    @object_case
    def test_missing_objects(self, store: ObjectStore, place: Path) -> None:
        """A missing object is an error that names it, and deleting it changes nothing."""
        for call in (lambda: store.get(_UNKNOWN), lambda: [*store.read(_UNKNOWN)]):
            error = refuses(StoreError, call)
            check(_UNKNOWN in error.message and bool(error.next_step), f"It says {error}.")
        store.delete([_UNKNOWN])
        equal(store.missing([_UNKNOWN]), {_UNKNOWN}, "what is missing")
        equal(store.missing([]), set(), "what is missing of nothing")
        equal(names_in(store), [], "what is stored")

    @object_case
    def test_a_large_object_needs_leave(self, store: ObjectStore, place: Path) -> None:
        """`get` refuses an object that is larger than its caller expects."""
        name = store.put(contents_of(3, 2 * _MIB))
        refuses(StoreError, lambda: store.get(name, max_bytes=2 * _MIB - 1))
        equal(len(store.get(name, max_bytes=2 * _MIB)), 2 * _MIB, "the length")

    @object_case
    def test_many_objects(self, store: ObjectStore, place: Path) -> None:
        """A thousand objects are listed once each, and asked for at once."""
        contents = [f"object {number}".encode() for number in range(_MANY)]
        with ThreadPoolExecutor(4) as threads:
            names = [*threads.map(store.put, contents)]
        listed = [*store.list()]
        equal(sorted(one.sha256 for one in listed), sorted(names), "the listed names")
        sizes = {digest_of(one): len(one) for one in contents}
        check(all(one.size_bytes == sizes[one.sha256] for one in listed), "A size is wrong.")
        unknown = {digest_of(f"unknown {number}".encode()) for number in range(10)}
        equal(store.missing([*names, *unknown]), unknown, "what is missing")
        store.delete(names[: _MANY // 2])
        equal(names_in(store), sorted(names[_MANY // 2 :]), "what is left")

    @object_case
    def test_spaces_are_apart(self, store: ObjectStore, place: Path) -> None:
        """Nothing of one space is seen, or deleted, in another one or in one below it."""
        one, other, below = (store.below(name) for name in ("ab", "another", "ab/tmp"))
        for space in (one, other, below):
            name = space.put(b"the same")
        one.delete([name])
        equal([names_in(space) for space in (one, other, below)], [[], [name], [name]], "the lists")
        equal(store.missing([name]), {name}, "what is missing above them")
        equal(store.below("ab").below("tmp").get(name), b"the same", "the content")
        refuses(StoreError, lambda: one.get(name))
        for bad in (
            "",
            "/",
            "..",
            "a/../b",
            "/one",
            "one/",
            "one//two",
            "=one",
            "one\x00",
            "one\n",
        ):
            refuses(InputError, partial(store.below, bad))

    @object_case
    def test_pruning(self, store: ObjectStore, place: Path) -> None:
        """Old objects go, and those beyond a total size; those that are named stay."""
        names = [store.put(contents_of(seed, 1000)) for seed in range(6)]
        began = min(one.stored_at_s for one in store.list())
        equal(prune_objects(store, stored_before_s=began - _HOUR_S), (), "what is too old")
        gone = prune_objects(store, max_total_bytes=4500, kept=names[:3])
        equal(len(gone), 2, "how many are beyond the size")
        check(not {one.sha256 for one in gone} & {*names[:3]}, "One that is named is gone.")
        gone = prune_objects(store, stored_before_s=began + _HOUR_S, kept=names[:2])
        equal(len(gone), 2, "how many are old")
        equal(names_in(store), sorted(names[:2]), "what is left")

    @object_case
    def test_storing_again_makes_it_young(self, store: ObjectStore, place: Path) -> None:
        """What was just stored counts as stored within the last hour, by the store's clock."""
        store.put(b"another", sha256=None)
        for _ in range(2):
            name = store.put(b"content")
            (found,) = (one for one in store.list() if one.sha256 == name)
            age_s = time.time() - found.stored_at_s
            check(-600 < age_s < _HOUR_S + 600, f"It is {age_s:.0f} s old.")
