"""The tokens of MCP servers, each server's in a file of user space that only its owner can read.

Source: ADR 048; RFC 6749, section 10.3.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from ryecore.errors import ConfigError
from ryecore.items.files import write_atomically

__all__ = [
    "TokenFile",
    "canonical_url",
    "check_private",
    "is_scope",
    "make_private",
    "may_authorize",
    "may_carry_tokens",
    "secrets_in",
]

_FOLDER: Final = Path(".ai/state/mcp/tokens")
_SCOPE: Final = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{0,1000}")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def canonical_url(url: str) -> str:
    """Return the URL for which tokens are kept: without query, in lower case up to its path."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), parts.path.rstrip("/"), "", ""))


def is_scope(text: str) -> bool:
    """Return whether a text is a list of scopes, or empty.

    Source: RFC 6749, section 3.3.
    """
    return _SCOPE.fullmatch(text) is not None


def may_carry_tokens(url: str) -> bool:
    """Return whether tokens may be sent to a URL: over TLS, or within this machine.

    Source: RFC 6750, section 5.3.
    """
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in _LOOPBACK


def may_authorize(url: str, server_url: str) -> bool:
    """Return whether a server may have requests of its authorization sent to a URL.

    Over TLS; within this machine only for a server there, so that none elsewhere reaches what
    listens only here.

    Source: RFC 6749, section 3.2; RFC 9728, section 7.7.
    """
    if urlsplit(url).hostname in _LOOPBACK:
        return urlsplit(server_url).hostname in _LOOPBACK
    return may_carry_tokens(url)


class TokenFile:
    """What is kept of the authorization at one server: the client that is registered, and tokens.

    Args:
        user_space: The folder that holds the user's `.ai`.
        url: The server's URL.
    """

    def __init__(self, user_space: Path, url: str) -> None:
        self.url = canonical_url(url)
        name = hashlib.sha256(self.url.encode()).hexdigest()[:32]
        self.path = user_space / _FOLDER / f"{name}.json"

    def read(self) -> dict[str, Any]:
        """Return what is kept; nothing for a file that isn't there.

        Raises:
            ConfigError: Others may read the file, or it holds something else.
        """
        try:
            check_private(self.path.parent)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return {}
        except PermissionError as problem:
            raise self._unusable(problem.strerror or str(problem), self._folder_step) from None
        except OSError as problem:
            raise self._unusable(problem.strerror or str(problem)) from None
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if status.st_mode & 0o077 or status.st_uid != os.geteuid():
                raise self._unusable("others may read it")
            try:
                document = json.loads(file.read())
            except ValueError:
                raise self._unusable("it is not JSON") from None
        if not isinstance(document, dict) or document.get("url") != self.url:
            raise self._unusable("it is not one of this server")
        return document

    def write(self, document: Mapping[str, object]) -> None:
        """Replace what is kept, in one step that survives a crash.

        Raises:
            ConfigError: It can't be written.
        """
        content = json.dumps({**document, "url": self.url}, indent=1).encode()
        try:
            make_private(self.path.parent)
            write_atomically(self.path, content, mode=0o600)
        except PermissionError as problem:
            raise self._unusable(problem.strerror or str(problem), self._folder_step) from None
        except OSError as problem:
            raise self._unusable(problem.strerror or str(problem)) from None

    def try_lock(self) -> int | None:
        """Lock the file; return the descriptor to close, None while another process has it.

        Raises:
            OSError: It can't be locked, as where it isn't there.
        """
        while True:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # it was replaced meanwhile

    def remove(self) -> bool:
        """Remove what is kept; return whether there was anything."""
        with suppress(FileNotFoundError):
            self.path.unlink()
            return True
        return False

    @property
    def _folder_step(self) -> str:
        folder = self.path.parent
        shown, login = shlex.quote(str(folder)), "log in again: rye mcp login SERVER"
        if folder.is_symlink():
            target = shlex.quote(os.path.realpath(folder))
            return (
                f"Remove the link: rm {shown}. If it is yours, move its folder there: mv {target} "
                f"{shown}. Else {login}"
            )
        if not folder.is_dir():
            return f"Remove it, and {login}"
        return f"Look at what is in {shown}, then: chown $USER {shown}; chmod 700 {shown}"

    def _unusable(self, problem: str, next_step: str = "") -> ConfigError:
        return ConfigError(
            f"The tokens in {self.path} can't be used: {problem}.",
            next_step=next_step or f"Remove {self.path}, and log in again: rye mcp login SERVER",
            path=self.path,
        )


def secrets_in(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of a token file that no error may repeat."""
    for part, names in (
        ("tokens", ("access_token", "refresh_token", "id_token")),
        ("client", ("client_secret", "registration_access_token")),
    ):
        for name in names:
            value = (document.get(part) or {}).get(name)
            if isinstance(value, str) and value:
                yield value
    if isinstance(key := document.get("dpop_key"), str):
        yield key


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may read, or see that it is one.

    Raises:
        PermissionError: Others may write to it.
        OSError: It can't be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    check_private(folder)


def check_private(folder: Path) -> None:
    """Take the right to read a folder from others; nothing in one that they may write to counts.

    Raises:
        PermissionError: Others may write to it: it is theirs, their mode, or a link.
        FileNotFoundError: It isn't there.
        OSError: It can't be read.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(folder, flags)
    except NotADirectoryError:
        what = "a link" if folder.is_symlink() else "not a folder"
        raise PermissionError(errno.EACCES, f"{folder} is {what}") from None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise PermissionError(errno.EACCES, f"others may write to {folder}")
        if status.st_mode & 0o077:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
