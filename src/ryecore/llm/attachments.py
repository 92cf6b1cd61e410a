"""Images and files to send to a model: from a path, bytes or a URL."""

import mimetypes
import os
import re
import stat
from os import PathLike
from pathlib import PurePath, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import anyio
from attrs import field

from ryecore.convert.lines import quoted
from ryecore.errors import ConfigError, InputError
from ryecore.frozen import frozen
from ryecore.llm.checks import above, of
from ryecore.llm.media import UNKNOWN, MediaStore, media_type_of
from ryecore.llm.parts import MediaPart, TextPart

__all__ = ["Media"]

MAX_MEDIA_BYTES = 20_000_000
"""The default bound of a medium, in bytes."""

_SCHEMES = ("http://", "https://")


_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
_MAX_SAID_CHARS: Final = 200


def _bare_type(declared: object) -> Any:
    """Convert a media type with attrs: without its parameters, in small letters."""
    return declared.partition(";")[0].strip().lower() if isinstance(declared, str) else declared


@frozen(kw_only=True)
class _Content:
    """The content of a medium, and its file's name."""

    content: bytes = field(repr=False)
    name: str


@frozen
class Media:
    """An image or a file to send: `session.send("What is this?", Media("photo.png"))`.

    It is read when it is sent. The type is guessed from the content. Text is sent as text, behind
    the name of its file; anything else is kept in the host's store, and sent as it is.

    Attributes:
        source: A path, bytes, or a URL with `http://` or `https://`.
        media_type: Such as `image/png`, also with parameters, which are left out; by default
            guessed.
        name: The file's name; by default that of the path or URL.
        max_bytes: The bound of the content.
        allow_private: Whether a URL may lead to private addresses, such as those of this machine.
            Keep it off for URLs from others, which could read what only your network should.

    Raises:
        ConfigError: A field is of the wrong type, or `media_type` has the form of none.
    """

    source: str | PathLike[str] | bytes = field(
        validator=of("a path, bytes or a URL", str, PathLike, bytes), repr=False
    )
    media_type: str | None = field(
        default=None, converter=_bare_type, validator=of("a text", str, type(None))
    )
    name: str = field(default="", validator=of("a text", str))
    max_bytes: int = field(default=MAX_MEDIA_BYTES, validator=above(0), kw_only=True)
    allow_private: bool = field(default=False, validator=of("True or False", bool), kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.media_type and not _MEDIA_TYPE.fullmatch(self.media_type):
            raise ConfigError(
                f"{quoted(self.media_type)} isn't a media type.",
                next_step='Write a type and a subtype, such as "image/png".',
            )

    async def part(self, store: MediaStore) -> MediaPart | TextPart:
        """Read the content, and return it as a part of a message.

        Args:
            store: The store that keeps the content.

        Raises:
            InputError: It can't be read, is empty or too large, or its type can't be guessed; or a
                URL leads to a private address.
            MissingExtra: A URL needs the extra `remote`.
            StoreError: It can't be stored.
        """
        read = await self._read()
        name = _encodable(self.name or read.name)
        if not read.content:
            raise InputError(f"{name or 'The medium'} is empty.", next_step="Pass another one.")
        media_type = self.media_type or media_type_of(read.content)
        if media_type == UNKNOWN:
            text = _text_of(read.content)
            if text is not None:
                return TextPart(f"{name}:\n\n{text}" if name else text)
            media_type = mimetypes.guess_type(name)[0] or UNKNOWN
        if media_type == UNKNOWN:
            raise InputError(
                f"The type of {name or 'the bytes'} can't be guessed.",
                next_step='Say it, such as Media(source, "image/png").',
            )
        return await anyio.to_thread.run_sync(store.put, read.content, media_type, name)

    async def _read(self) -> _Content:
        if isinstance(self.source, bytes):
            self._check_size(len(self.source), self.name or "The content")
            return _Content(content=self.source, name="")
        if isinstance(self.source, str) and self.source.lower().startswith(_SCHEMES):
            from ryecore.llm.fetching import fetch  # noqa: PLC0415 - needs an extra

            content = await fetch(self.source, self.max_bytes, allow_private=self.allow_private)
            return _Content(
                content=content, name=PurePosixPath(unquote(urlsplit(self.source).path)).name
            )
        return await anyio.to_thread.run_sync(self._read_file, os.fsdecode(self.source))

    def _read_file(self, path: str) -> _Content:
        said = _encodable(path[:_MAX_SAID_CHARS])
        if path[:5].lower() == "data:" or "://" in path[:_MAX_SAID_CHARS]:
            raise InputError(
                f"{quoted(said)} isn't a URL that is fetched.",
                next_step="Pass a URL with https:// or http://, or the bytes.",
            )
        try:
            # A pipe would block here until somebody writes.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise InputError(f"{said} isn't a file.", next_step="Pass a file's path.")
                self._check_size(status.st_size, said)
                content = file.read(self.max_bytes + 1)
        except (OSError, ValueError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else str(problem)
            raise InputError(
                f"{said or 'A path without a name'} can't be read: {why}.",
                next_step="Pass the path of a file, or its bytes.",
            ) from None
        self._check_size(len(content), said)
        return _Content(content=content, name=PurePath(path).name)

    def _check_size(self, size_bytes: int, what: str) -> None:
        if size_bytes > self.max_bytes:
            raise InputError(
                f"{what} has more than {self.max_bytes:,} bytes.",
                next_step="Make it smaller, or pass max_bytes; models have bounds of their own.",
            )


def _encodable(text: str) -> str:
    """Return a name as text that can be sent: that of a file may be no UTF-8."""
    return text.encode(errors="replace").decode()


def _text_of(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
