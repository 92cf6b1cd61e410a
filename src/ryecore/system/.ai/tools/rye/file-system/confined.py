# rye:signed:2026-11-28T17:20:55Z:e0bb95fd159db1b446dd3fccd4236b9ddee547a3077003198373e03d34d6dc55:ICkOqAGjY3C8pCvz2dy_a2cvIs7dQ2fRez6GEWymkDNcyLCK3RXBRP4A-zZiBJqKScemYXxb4cNfaTNRpaLZAQ:a50d0ff255b90b74
"""Where the file tools may go: the project, and the folders that signed config allows beside it.

A path is judged by where it really leads, compared by components. It is then opened from its
root's descriptor, one component at a time and never through a link, so that a link which is
put in its way after the judgement is refused.
"""

from __future__ import annotations

import errno
import os
import stat

from answers import Refused, visible

ACCESS = (
    "A host can allow more, or a signed .ai/config/file-system/access.yaml "
    "(`rye sign config:file-system/access`)"
)
PROTECTED = (".ai", ".git", ".venv", "venv", "node_modules", "__pycache__")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Place:
    """A real path below an allowed folder, which holds no link as far as was seen."""

    __slots__ = ("parts", "root", "shown")

    def __init__(self, root: str, parts: tuple[str, ...], shown: str) -> None:
        self.root = root  # the allowed folder, absolute
        self.parts = parts  # the components below it
        self.shown = shown  # as the tools name it: relative to the project, or absolute

    def child(self, name: str) -> Place:
        """The place of that name in this folder."""
        shown = visible(name)
        if self.shown != ".":
            shown = f"{self.shown.rstrip('/')}/{shown}"
        return Place(self.root, (*self.parts, name), shown)

    def open_folder(self, create: bool = False) -> int:
        """Open this folder, making missing ones if `create`; the caller closes the descriptor."""
        return self._walk(self.parts, create)

    def open_parent(self, create: bool = False) -> tuple[int, str]:
        """Open the folder of this place, and return its descriptor and the name in it.

        The caller closes it. With `create`, missing folders are made.
        """
        if not self.parts:
            raise Refused(f"{self.shown!r} is a folder; give the path of a file.")
        return self._walk(self.parts[:-1], create), self.parts[-1]

    def open_file(self) -> tuple[int, os.stat_result]:
        """Open this file to read it; return its descriptor and its status.

        The caller closes the descriptor.
        """
        folder, name = self.open_parent()
        try:
            return open_regular(folder, name, self.shown)
        finally:
            os.close(folder)

    def is_file(self) -> bool:
        """Whether a regular file stands here now."""
        try:
            status = os.lstat(os.path.join(self.root, *self.parts))
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode)

    def _walk(self, parts: tuple[str, ...], create: bool) -> int:
        try:
            folder = os.open(self.root, FOLDER)
            for name in parts:
                try:
                    inner = _enter(folder, name, create)
                finally:
                    os.close(folder)
                folder = inner
        except OSError as failure:
            raise _explained(failure, self.shown) from failure
        return folder


def _enter(folder: int, name: str, create: bool) -> int:
    try:
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
    _make(folder, name)
    return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)


def _make(folder: int, name: str) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return  # somebody else made it meanwhile


def open_regular(folder: int, name: str, shown: str) -> tuple[int, os.stat_result]:
    """Open a regular file to read it; anything else is refused, without waiting for it.

    Return its descriptor, which the caller closes, and its status. Errors call it `shown`.
    """
    try:
        descriptor = os.open(name, FILE, dir_fd=folder)
    except OSError as failure:
        raise _explained(failure, shown) from failure
    status = os.fstat(descriptor)
    try:
        require_regular(status, shown)
    except Refused:
        os.close(descriptor)
        raise
    return descriptor, status


def require_regular(status: os.stat_result, shown: str) -> None:
    """Refuse everything but a regular file; errors call it `shown`."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise Refused(f"{shown!r} is a folder; give the path of a file.")
    raise Refused(f"{shown!r} is a FIFO, device, socket or link; only regular files are opened.")


def locate(path: str, project_path: str, params: dict[str, object], writing: bool = False) -> Place:
    """Find where a path really leads, and refuse it outside of what is allowed.

    Of the parameters, only the signed `resolved_config` counts here. With `writing`, a protected
    place is refused as well.
    """
    if not path or "\0" in path:
        raise Refused("The path is empty or contains a NUL character; give a plain path.")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise Refused(f"The path {path!r} has characters that a file name can't have.") from None
    config = params.get("resolved_config") or {}
    if not isinstance(config, dict):
        raise Refused("The config file-system/access must be a mapping.")
    project = os.path.realpath(project_path)
    real = os.path.realpath(os.path.join(project, path))
    parts = _below(project, real)
    if parts is not None:
        place = Place(project, parts, visible("/".join(parts)) or ".")
    else:
        beside = _beside(real, config)
        if beside is None:
            raise Refused(
                f"{path!r} leads outside the project {project}; give a path inside it. "
                f"{ACCESS} with the folder in `roots`."
            )
        place = beside
        if writing and not _within(real, _folders(config, "writable_roots")):
            raise Refused(
                f"{path!r} may be read but not written. {ACCESS} with its folder in "
                "`writable_roots`."
            )
    if writing:
        _refuse_protected(place, config)
    return place


def _beside(real: str, config: dict[str, object]) -> Place | None:
    # The outermost root comes first: more of the path is then looked at for protected names.
    for root in sorted(_folders(config, "roots"), key=len):
        parts = _below(root, real)
        if parts is not None:
            return Place(root, parts, visible(real))
    return None


def _within(real: str, folders: list[str]) -> bool:
    return any(_below(folder, real) is not None for folder in folders)


def _folders(config: dict[str, object], key: str) -> list[str]:
    folders = _strings(config, key)
    for folder in folders:
        if not os.path.isabs(folder):
            raise Refused(f"`{key}` in the config file-system/access: {folder!r} is not absolute.")
    return [os.path.realpath(folder) for folder in folders]


def _strings(config: dict[str, object], key: str) -> list[str]:
    values = config.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise Refused(f"`{key}` in the config file-system/access must be a list of strings.")
    return values


def _below(root: str, real: str) -> tuple[str, ...] | None:
    """The components of a path below a root, None if it is not below it; both are real."""
    above = [part for part in root.split("/") if part]
    parts = [part for part in real.split("/") if part]
    if parts[: len(above)] != above:
        return None
    return tuple(parts[len(above) :])


def _refuse_protected(place: Place, config: dict[str, object]) -> None:
    allowed = {name.strip("/").casefold() for name in _strings(config, "allow_protected_writes")}
    folder = place.root
    for name in place.parts:
        folded = name.casefold()
        # A virtual environment by whichever name: its interpreter runs what is written there.
        if os.path.lexists(f"{folder}/pyvenv.cfg") and "pyvenv.cfg" not in allowed:
            raise Refused(
                f"{place.shown!r} is protected from writing, because {folder!r} is a virtual "
                f"environment. {ACCESS} with 'pyvenv.cfg' in `allow_protected_writes`."
            )
        folder = f"{folder}/{name}"
        secret = folded.startswith(".env")
        if folded in allowed or (secret and ".env*" in allowed):
            continue
        if secret or folded in PROTECTED:
            raise Refused(
                f"{place.shown!r} is protected from writing, because of {name!r}. "
                f"{ACCESS} with {name!r} in `allow_protected_writes`."
            )


def _explained(failure: OSError, shown: str) -> Refused:
    if failure.errno == errno.ENOENT:
        return Refused(
            f"{shown!r} doesn't exist. Use rye/file-system/list or rye/file-system/glob to see "
            "what does."
        )
    if failure.errno in (errno.ENOTDIR, errno.ELOOP):
        return Refused(
            f"{shown!r} isn't a folder, or a part of its path isn't one or became a link."
        )
    if failure.errno in (errno.ENXIO, errno.EOPNOTSUPP):
        return Refused(f"{shown!r} is a socket or device; only regular files are opened.")
    return Refused(f"{shown!r} can't be opened: {failure.strerror}.")
