"""The fixture of the suite for stores of objects."""

import hashlib
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar
from unittest import SkipTest

from ryecore.state.object_store import ObjectStore
from ryecore.testing.conformance.bench import CaseResult, run_cases

__all__ = [
    "ObjectCases",
    "contents_of",
    "digest_of",
    "names_in",
    "object_case",
    "refuses",
    "run_object_conformance",
]

E = TypeVar("E", bound=BaseException)
Opens: TypeAlias = Callable[[], AbstractContextManager[ObjectStore]]
Case: TypeAlias = Callable[[Any, ObjectStore, Path], None]


class ObjectCases:
    """The store under test, as its author makes it known to the suite.

    Attributes:
        settings: What opening a store needs to know besides its place, such as an address. The
            suite's own processes, which import this class anew, get the same settings.
        secrets: Texts that no `repr` and no error may show, such as a password.
    """

    settings: ClassVar[Mapping[str, str]] = {}
    secrets: ClassVar[tuple[str, ...]] = ()

    def open_store(self, place: Path) -> AbstractContextManager[ObjectStore]:
        """Open the store that belongs to an empty folder; a second opening sees the same objects.

        Args:
            place: A folder that only this case uses; a server's store derives a name from it.
        """
        raise NotImplementedError

    def alter(self, place: Path, sha256: str, content: bytes) -> None:
        """Replace the content of a stored object, which has the same length, behind the store.

        Args:
            place: The place of the store.
            sha256: The object.
            content: The other content.
        """
        raise SkipTest("Nothing says how an object of this store can be altered: define alter.")

    def broken_stores(self, place: Path) -> Mapping[str, Opens]:
        """Return stores that can't be used, by what is wrong with them.

        Such as one at an address where no server listens, one with a wrong password, and one of a
        bucket that doesn't exist. They may be refused when they are opened, or used.
        """
        raise SkipTest("This store names no way in which it can be out of reach.")


def object_case(body: Case) -> Callable[[Any], None]:
    """Make a test method of a case, which gets an open store and its place."""

    @wraps(body)
    def method(self: ObjectCases) -> None:
        with (
            tempfile.TemporaryDirectory(prefix="rye-objects-") as folder,
            self.open_store(Path(folder)) as store,
        ):
            body(self, store, Path(folder))

    del method.__wrapped__  # a runner would ask for its arguments
    return method


def refuses(expected: type[E], call: Callable[[], object]) -> E:
    """Make a call that must be refused, and return its error."""
    try:
        found = call()
    except expected as error:
        return error
    raise AssertionError(f"Not refused with {expected.__name__}; it returned {found!r:.200}.")


def digest_of(content: bytes) -> str:
    """Return the name of an object."""
    return hashlib.sha256(content).hexdigest()


def contents_of(seed: int, size_bytes: int) -> bytes:
    """Return content that is the same for the same seed."""
    return random.Random(seed).randbytes(size_bytes)  # noqa: S311 - no secret


def names_in(store: ObjectStore) -> list[str]:
    """Return the names of all objects in a space, sorted."""
    return sorted(one.sha256 for one in store.list())


def parts_of(content: bytes, size_bytes: int) -> Iterator[bytes]:
    """Yield content in parts."""
    for start in range(0, len(content), size_bytes):
        yield content[start : start + size_bytes]


def run_object_conformance(suite: type[ObjectCases], *names: str) -> tuple[CaseResult, ...]:
    """Run the suite without a test runner, one case after another.

    Args:
        suite: The subclass for a store.
        names: The cases to run; all where none is named.

    Returns:
        The result of each case.
    """
    return run_cases(suite, names)
