"""Cases: interrupted uploads, altered objects, and stores that can't be reached."""

import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from ryecore.errors import StateUnreachable, StoreError
from ryecore.state.object_store import ObjectStore
from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.objects.bench import (
    ObjectCases,
    contents_of,
    digest_of,
    names_in,
    object_case,
    refuses,
)

__all__ = ["FailureCases"]

_MIB: Final = 1024 * 1024


class _InterruptedError(Exception):
    pass


class FailureCases(ObjectCases):
    """Interrupted uploads, altered objects, and stores that can't be reached."""

    @object_case
    def test_an_interrupted_upload_leaves_nothing(self, store: ObjectStore, place: Path) -> None:
        """Where the source of an upload fails, its error is raised, and nothing is visible."""
        for whole in (0, 3, 9):
            parts = [contents_of(seed, _MIB) for seed in range(whole)]

            def interrupted(parts: list[bytes] = parts) -> Iterator[bytes]:
                yield from parts
                raise _InterruptedError

            refuses(_InterruptedError, lambda: store.put(interrupted()))
            names = [digest_of(b"".join(parts[:number])) for number in range(len(parts) + 1)]
            equal(store.missing(names), {*names}, "what is missing")
        equal(names_in(store), [], "what is stored")
        equal(store.get(store.put(b"later")), b"later", "what is stored afterwards")

    @object_case
    def test_an_altered_object_is_refused(self, store: ObjectStore, place: Path) -> None:
        """Altered content is an error, in whole and in chunks, and can be stored again."""
        for size in (10, 3 * _MIB):
            content = contents_of(size, size)
            name = store.put(content)
            self.alter(place, name, content[:-1] + bytes([content[-1] ^ 1]))
            error = refuses(StoreError, partial(store.get, name))
            check(name in error.message and bool(error.next_step), f"It says {error}.")
            read = 0
            with suppress(StoreError):
                for chunk in store.read(name):
                    read += len(chunk)
            check(read < size, "The whole of an altered object was read.")
            store.delete([name])
            store.put(content)
            equal(store.get(name) == content, True, "that the content is right again")

    @object_case
    def test_a_store_out_of_reach(self, store: ObjectStore, place: Path) -> None:
        """Where a store can't be used, each operation says so, and what to do next."""
        name = store.put(b"content")
        for wrong, opens in self.broken_stores(place).items():
            for does, call in {
                "put": lambda one: one.put(b"more"),
                "put of a large object": lambda one: one.put(contents_of(1, 20 * _MIB)),
                "get": lambda one: one.get(name),
                "read": lambda one: [*one.read(name)],
                "missing": lambda one: one.missing([name]),
                "list": lambda one: [*one.list()],
                "delete": lambda one: one.delete([name]),
            }.items():

                def use(opens=opens, call=call) -> object:  # type: ignore[no-untyped-def]
                    with opens() as broken:
                        return call(broken)

                error = refuses(StateUnreachable, use)
                check(bool(error.next_step), f"With {wrong}, {does} names no next step.")
                told = "".join(traceback.format_exception(error))
                self._hides_secrets(f"{told} {error!r} {error.to_dict()}")
        self._hides_secrets(f"{store!r} {store.shown} {vars(store)!r}")
        equal(store.get(name), b"content", "the content")

    def _hides_secrets(self, text: str) -> None:
        for secret in self.secrets:
            check(secret not in text, f"A secret is shown: {text.replace(secret, '***')}")
