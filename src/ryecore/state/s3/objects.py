"""Objects in an S3-compatible bucket: each has the key `PREFIX/SPACE/SHA256`.

A put replaces the whole object at once, and an object's content follows from its key. So nothing
depends on a conditional put, which some services lack. The driver's runtime doesn't survive a
fork, so that a forked child is refused instead of waiting forever.

Source: ADR 043.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Self, cast

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from ryecore.errors import RyeError, StateError, StateUnreachable, StoreError
from ryecore.state.object_store import (
    CHUNK_BYTES,
    MAX_WHOLE_BYTES,
    Content,
    Spool,
    StoredObject,
    check_digest,
    check_space,
    join_whole,
    missing_object,
    verified,
)
from ryecore.state.s3.address import S3Address, S3Keys

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, S3Config, S3Credential

__all__ = ["S3Objects"]

_SMALL_BYTES: Final = 64 * 1024
"""Up to so many bytes a put costs no more than to ask whether the object is there."""

_PART_BYTES: Final = 8 * 1024 * 1024
_PARTS_AT_ONCE: Final = 2
_YOUNG: Final = timedelta(minutes=30)
_PAGE: Final = 1000
_ASKED_AT_ONCE: Final = 16
_CLIENT: Final = {"connect_timeout": "5s", "read_timeout": "30s", "timeout": "15m"}
_RETRIES: Final = 3
_RETRY_S: Final = 20

_KEY: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_MISSING: Final = "NoSuchKey"
_NO_BUCKET: Final = "NoSuchBucket"
_WRONG_REGION: Final = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
_WRONG_KEYS: Final = frozenset({
    "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
    "XAdminUserNotFound", "RequestTimeTooSkewed",
})  # fmt: skip


class _MissingError(Exception):
    """There is no object of this key, or no bucket: an answer without a body doesn't say which."""


class S3Objects:
    """The objects in a bucket.

    Args:
        address: The bucket.
        client: The driver's store for it.
        space: The space.
    """

    def __init__(self, address: S3Address, client: S3Store, space: str = "") -> None:
        self._address = address
        self._client = client
        self._space = space

    @classmethod
    def open(cls, address: str, environ: Mapping[str, str]) -> Self:
        """Open the objects at an address. Nothing is sent yet.

        Args:
            address: The address, such as `s3://bucket/prefix`.
            environ: The environment with the keys.

        Raises:
            ConfigError: The address isn't one.
            StateUnreachable: The environment has no keys.
        """
        parsed = S3Address.parse(address, environ)
        keys = S3Keys.of(parsed, environ)
        # All that the driver would else take from this process's own environment.
        config = {
            "endpoint": parsed.endpoint,
            "region": parsed.region,
            "virtual_hosted_style_request": False,
            "skip_signature": False,
            **keys.role,
        }
        options = {**_CLIENT, "allow_http": parsed.endpoint.startswith("http:")}
        static = keys.static
        client = S3Store(
            parsed.bucket,
            config=cast("S3Config", config),
            client_options=cast("ClientConfig", options),
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
            credential_provider=None if static is None else _Provider(static),
        )
        return cls(parsed, client)

    @property
    def shown(self) -> str:
        """The bucket, the prefix, the service and the space."""
        return ", ".join(filter(None, (self._address.shown, self._space)))

    def below(self, space: str) -> Self:
        """Return the store of a space."""
        check_space(space)
        name = f"{self._space}/{space}" if self._space else space
        return type(self)(self._address, self._client, name)

    def put(self, content: Content, *, sha256: str | None = None) -> str:
        """Store content; see `ObjectStore.put`."""
        with Spool.of(content, sha256) as spool:
            key = self._key(spool.sha256)
            if spool.size_bytes > _SMALL_BYTES and self._is_there(key, spool.size_bytes):
                return spool.sha256
            with self._failing("written"):
                if spool.size_bytes <= _PART_BYTES:
                    whole = b"".join(spool.chunks())
                    obstore.put(self._client, key, whole, use_multipart=False)
                else:
                    obstore.put(
                        self._client,
                        key,
                        spool.chunks(),
                        chunk_size=_PART_BYTES,
                        max_concurrency=_PARTS_AT_ONCE,
                    )
            return spool.sha256

    def get(self, sha256: str, *, max_bytes: int = MAX_WHOLE_BYTES) -> bytes:
        """Return the content of an object; see `ObjectStore.get`."""
        return join_whole(self.read(sha256), sha256, max_bytes)

    def read(self, sha256: str) -> Iterator[bytes]:
        """Yield the content of an object in chunks; see `ObjectStore.read`."""
        return verified(self._chunks(check_digest(sha256)), sha256, self.shown)

    def missing(self, digests: Collection[str]) -> set[str]:
        """Return the names that no object has here."""
        names = sorted({check_digest(one) for one in digests})
        if not names:
            return set()
        with ThreadPoolExecutor(min(_ASKED_AT_ONCE, len(names))) as threads:
            found = threads.map(lambda one: self._head(self._key(one)), names)
            missing = {one for one, about in zip(names, found, strict=True) if about is None}
        if len(missing) == len(names):
            next(self.list(), None)  # a missing bucket answers in the same way, but not to this
        return missing

    def list(self) -> Iterator[StoredObject]:
        """Yield the objects of this space."""
        prefix = self._prefix()
        with self._failing("listed"):
            pages = iter(obstore.list(self._client, prefix or None, chunk_size=_PAGE))
        while True:
            with self._failing("listed"):
                page = next(pages, None)
            if page is None:
                return
            for one in page:
                name = one["path"][len(prefix) + 1 if prefix else 0 :]
                if _KEY.fullmatch(name):
                    yield StoredObject(name, one["size"], one["last_modified"].timestamp())

    def delete(self, digests: Collection[str]) -> None:
        """Delete objects."""
        keys = sorted({self._key(check_digest(one)) for one in digests})
        for start in range(0, len(keys), _PAGE):
            with self._failing("deleted"):
                obstore.delete(self._client, keys[start : start + _PAGE])

    def close(self) -> None:
        """Do nothing: the driver closes its connections by itself."""

    def _prefix(self) -> str:
        return "/".join(filter(None, (self._address.prefix, self._space)))

    def _key(self, sha256: str) -> str:
        return "/".join(filter(None, (self._prefix(), sha256)))

    def _is_there(self, key: str, size_bytes: int) -> bool:
        """Return whether an object was stored so lately that it needn't be stored again."""
        found = self._head(key)
        if found is None:
            return False
        age = datetime.now(UTC) - found["last_modified"]
        return found["size"] == size_bytes and abs(age) < _YOUNG

    def _head(self, key: str) -> "ObjectMeta | None":
        """Return what is known of an object; None where it, or its bucket, is missing."""
        try:
            with self._failing("read"):
                return obstore.head(self._client, key)
        except _MissingError:
            return None
        except StoreError:
            next(self.list(), None)  # whose refusal has a body, which says why
            raise

    def _chunks(self, sha256: str) -> Iterator[bytes]:
        try:
            with self._failing("read"):
                stream = iter(obstore.get(self._client, self._key(sha256)).stream(CHUNK_BYTES))
            while True:
                with self._failing("read"):
                    part = next(stream, None)
                if part is None:
                    return
                view = memoryview(part)
                for start in range(0, len(view), CHUNK_BYTES):
                    yield bytes(view[start : start + CHUNK_BYTES])
        except _MissingError:
            raise missing_object(sha256, self.shown) from None

    @contextmanager
    def _failing(self, done: str) -> Iterator[None]:
        _refuse_fork()
        try:
            yield
        except (BaseError, FileNotFoundError, PermissionError) as problem:
            # Its text has parts of the request, so it isn't shown.
            raise _failure(self._address, done, problem) from None


class _Provider:
    """Gives the driver keys that don't expire."""

    def __init__(self, keys: Mapping[str, str | None]) -> None:
        self._keys = keys

    def __call__(self) -> "S3Credential":
        return cast("S3Credential", {**self._keys, "expires_at": None})


class _Runtime:
    """The process in which the driver's runtime was started."""

    pid: int | None = None


def _refuse_fork() -> None:
    if _Runtime.pid is None:
        _Runtime.pid = os.getpid()
    if _Runtime.pid != os.getpid():
        raise StateError(
            "This process was forked from one that had used a bucket, whose driver doesn't survive "
            "a fork.",
            next_step="Fork before the bucket is used, or start the process by spawn.",
        )


def _failure(address: S3Address, done: str, problem: Exception) -> RyeError | _MissingError:
    """Return the error for a failed request."""
    text = str(problem)
    found = _CODE.search(text)
    code = found[1] if found else ""
    status = _STATUS.search(text)
    if isinstance(problem, FileNotFoundError) and code in ("", _MISSING):
        return _MissingError()
    told = code or (f"status {status[1]}" if status else "no answer")
    failed = f"The objects in {address.shown} can't be {done}: {told}."
    if code == _NO_BUCKET or (status and status[1] == "404" and not code):
        return StateUnreachable(
            failed, next_step=f"Make the bucket {address.bucket}, or correct its name."
        )
    if code in _WRONG_REGION or (status and status[1] in ("301", "307")):
        return StateUnreachable(
            failed, next_step="Name the bucket's region: ?region=REGION behind the address."
        )
    if code in _WRONG_KEYS or (status and status[1] in ("401", "403")):
        return StateUnreachable(
            failed,
            next_step="See AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the clock, and that they "
            "may get, put, delete and list objects of the bucket.",
        )
    if status is None:
        return StateUnreachable(
            failed, next_step="See that the service runs, and can be reached from here."
        )
    return StoreError(failed, next_step="See the log of the service, and try again.")
