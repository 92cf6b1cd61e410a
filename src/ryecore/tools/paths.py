"""Where a path argument leads, and whether it may lead there.

A path is judged by where it really leads, links followed, and compared by components. What is
judged is what the tool gets: the path that was found, which holds no link.

Source: decision 13.
"""

import os
from pathlib import Path
from typing import Final

__all__ = ["resolve_path"]

_PROTECTED: Final = frozenset({".ai", ".git", ".venv", "venv", "node_modules", "__pycache__"})


def resolve_path(path: object, root: Path | None, *, confined: bool, writing: bool) -> str:
    """The absolute path that a path argument stands for.

    Args:
        path: What the model wrote.
        root: What it is relative to; the working folder where it is None.
        confined: Whether it must stay below the root.
        writing: Whether what stands there is to be written.

    Raises:
        ValueError: It may not be used; why is said, without naming a folder of the host's.
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError("it is empty, or no text, or holds a NUL character")
    base = os.path.realpath(root or ".")
    try:
        real = os.path.realpath(os.path.join(base, path))
        again = os.path.realpath(real)
    except (OSError, ValueError):
        raise ValueError("it holds what no file name can hold") from None
    if again != real:  # behind a link that leads to itself, realpath follows no other
        raise ValueError("it leads in a circle")
    if confined and not _is_below(base, real):
        raise ValueError("it leads outside the folder that may be used")
    if writing:
        _refuse_protected(base if confined else "/", real)
    return real


def _is_below(root: str, real: str) -> bool:
    above, parts = _parts(root), _parts(real)
    return parts[: len(above)] == above


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _refuse_protected(root: str, real: str) -> None:
    folder = root
    for name in _parts(real)[len(_parts(root)) :]:
        # A virtual environment by whichever name: its interpreter runs what is written there.
        if os.path.lexists(f"{folder}/pyvenv.cfg"):
            raise ValueError("it lies in a virtual environment, which is protected from writing")
        folder = f"{folder}/{name}"
        folded = name.casefold()
        if folded in _PROTECTED or folded.startswith(".env"):
            raise ValueError(f"{name[:60]!r} is protected from writing")
