"""sign: for the person whose key it is."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from attrs import frozen

from ryecore.chain.file_types import RUNTIMES_FOLDER
from ryecore.errors import InputError, ItemNotFound, SigningError
from ryecore.items.keys import AuthorKeys
from ryecore.items.places import absolute, place_of
from ryecore.items.refs import KIND_FOLDERS
from ryecore.items.signature import CommentForm, comment_form
from ryecore.items.signing import SignedFile, find_files, sign_file
from ryecore.items.spaces import Space, Spaces
from ryecore.policy import CallContext

__all__ = ["SignAction", "SignReport", "file_called"]

FileTypesReader = Callable[[], Mapping[str, CommentForm]]


@frozen
class SignReport:
    """What was signed, and what could not be.

    Attributes:
        signed: The files that were signed.
        failed: The files that were not, each with the reason.
    """

    signed: tuple[SignedFile, ...]
    failed: tuple[tuple[Path, str], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """The report as a JSON-ready object."""
        return {
            "status": "success" if not self.failed else "error",
            "signed": [
                {
                    "item_id": f"{one.kind}:{one.relative}",
                    "path": str(one.path),
                    "timestamp": one.signature.timestamp,
                    "hash": one.signature.content_hash,
                    "fingerprint": one.signature.fingerprint,
                }
                for one in self.signed
            ],
            "failed": [{"path": str(path), "error": error} for path, error in self.failed],
            "total": len(self.signed) + len(self.failed),
        }


class SignAction:
    """Signs items with the author's key.

    Args:
        spaces: Where items are looked for.
        keys: The author's key.
        file_types: The comment forms that signed runtimes add.
    """

    def __init__(self, spaces: Spaces, keys: AuthorKeys, file_types: FileTypesReader) -> None:
        self._spaces = spaces
        self._keys = keys
        self._file_types = file_types

    def __call__(
        self,
        pattern: str,
        ctx: CallContext,
        *,
        space: Literal["project", "user"] = "project",
    ) -> SignReport:
        """Sign one item, or all that a glob matches.

        Args:
            pattern: `kind:id`, `kind:path.ext`, a glob such as `tool:acme/*`, or a file's path.
            ctx: On whose behalf. A model can't sign.
            space: Where to look.

        Returns:
            What was signed.

        Raises:
            InputError: A caller with capabilities of its own asked for it.
            SigningError: There is no key.
            ItemNotFound: Nothing matches.
        """
        if ctx.capabilities is not None:
            raise InputError(
                "Signing is for the person whose key it is, not for a model or a tool.",
                next_step="Read the item, then sign it yourself: rye sign REF.",
            )
        files = _files(pattern, self._spaces.project if space == "project" else self._spaces.user)
        key = self._keys.load()
        signed: list[SignedFile] = []
        failed: list[tuple[Path, str]] = []
        # Runtimes come first: a signed one brings the comment form of the files behind it.
        for kind, path, relative in sorted(files, key=_is_no_runtime):
            file_types = self._file_types() if comment_form(path.suffix) is None else {}
            try:
                signed.append(sign_file(path, kind, relative, key, file_types=file_types))
            except SigningError as error:
                if len(files) == 1:
                    raise
                failed.append((path, str(error)))
        return SignReport(tuple(signed), tuple(failed))


def _is_no_runtime(file: tuple[str, Path, str]) -> bool:
    kind, _, relative = file
    return kind != "tool" or not relative.startswith(f"{RUNTIMES_FOLDER}/")


def _files(pattern: str, space: Space) -> tuple[tuple[str, Path, str], ...]:
    kind, colon, _ = pattern.partition(":")
    if not (colon and kind in KIND_FOLDERS):
        path = file_called(pattern)
        if path is not None:
            kind, relative = place_of(path)
            return ((kind, path, relative),)
        for kind in ("directive", "tool"):  # what a bare id means to execute, too
            with suppress(ItemNotFound):
                return find_files(space, f"{kind}:{pattern}")
    return find_files(space, pattern)


def file_called(text: str) -> Path | None:
    """The file that a person means; None where the text names none."""
    try:
        path = absolute(Path(text).expanduser())
    except RuntimeError:  # the home folder of nobody
        return None
    return path if os.path.isfile(path) else None
