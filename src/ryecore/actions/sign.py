"""The sign action: for the owner of the key, or with the owner's approval for a model."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from attrs import evolve

from ryecore.actions.approval import ask, file_to_approve, own_space
from ryecore.chain.builder import RUNTIMES_FOLDER
from ryecore.display.text import Rendered, StyledText, counted, status_mark
from ryecore.errors import (
    InputError,
    IntegrityError,
    InvalidItemId,
    LinkLeavesSpace,
    RyeError,
    SigningError,
    UnsignedItem,
)
from ryecore.frozen import frozen
from ryecore.items.documents import DOCUMENT_EXTENSIONS, parse_document
from ryecore.items.keys import AuthorKeys
from ryecore.items.paths import file_called, place_of
from ryecore.items.refs import KIND_FOLDERS, ItemRef, is_export
from ryecore.items.signature import FileTypesReader, comment_form, split_content
from ryecore.items.signing import SignedFile, check_name, find_files, sign_file
from ryecore.items.spaces import ItemSource, Space, Spaces, named
from ryecore.items.verification import MAX_ITEM_BYTES, Verifier
from ryecore.lillux.digests import read_digest
from ryecore.lillux.event_loop import run_in_thread
from ryecore.policy import CallContext
from ryecore.policy.permissions import ApprovalRequest, Approve, FileToApprove, check_capability

__all__ = ["SignAction", "SignReport"]

Files = tuple[tuple[str, Path, str], ...]


@frozen(repr=False)
class SignReport(Rendered):
    """The report of a signing.

    Attributes:
        signed: The files that were signed.
        failed: The files that were not, each with the reason.
        skipped: The records of threads that the glob matched, which can't be signed.
        unreadable: The signed tools and directives that won't run, each with the reason.
    """

    signed: tuple[SignedFile, ...]
    failed: tuple[tuple[Path, str], ...] = ()
    skipped: tuple[Path, ...] = ()
    unreadable: tuple[tuple[Path, str], ...] = ()

    @property
    def summary(self) -> str:
        """The report in one sentence."""
        total = len(self.signed) + len(self.failed)
        failed = f", {len(self.failed)} failed" if self.failed else ""
        skipped = f", {self.skipped_text}" if self.skipped else ""
        return f"Signed {len(self.signed)}/{counted(total, 'item')}{failed}{skipped}."

    @property
    def skipped_text(self) -> str:
        """The number of skipped records of threads, in words."""
        count = len(self.skipped)
        return f"{counted(count, 'record')} of threads skipped"

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-ready object."""
        document: dict[str, object] = {
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
            "skipped": [str(path) for path in self.skipped],
            "total": len(self.signed) + len(self.failed),
            "summary": self.summary,
        }
        if self.unreadable:
            document["warnings"] = [
                f"{path} is signed, but won't run: {problem}" for path, problem in self.unreadable
            ]
        return document

    def render(self) -> StyledText:
        """Render the report for a terminal or a notebook: a line for each file, and the key."""
        text, unreadable = StyledText(), dict(self.unreadable)
        for one in self.signed:
            text.line(status_mark("ok"), f"{one.kind}:{one.relative}", (f"  {one.path}", "dim"))
            if one.path in unreadable:
                text.line((f"  ! signed, but won't run: {unreadable[one.path]}", "warn"))
        for path, error in self.failed:
            text.line(status_mark("problem"), str(path), (f"  {error}", "bad"))
        text.line(
            f"{len(self.signed)} of {len(self.signed) + len(self.failed)} signed"
            + (f" with the key {self.signed[0].signature.fingerprint}" if self.signed else "")
            + (f"; {self.skipped_text}" if self.skipped else "")
        )
        return text

    def __repr__(self) -> str:
        return f"SignReport({len(self.signed)} signed, {len(self.failed)} failed)"


class SignAction:
    """The action that signs items with the author's key."""

    def __init__(
        self,
        spaces: Spaces,
        keys: AuthorKeys,
        verifier: Verifier,
        file_types: FileTypesReader,
        approve: Approve | None,
    ) -> None:
        self._spaces = spaces
        self._keys = keys
        self._verifier = verifier
        self._file_types = file_types
        self._approve = approve

    def __call__(
        self,
        pattern: str,
        ctx: CallContext,
        *,
        space: Literal["project", "user"] = "project",
    ) -> SignReport:
        """Sign one item, or all that a glob matches. A model can't: see `on_behalf`."""
        if ctx.capabilities is not None:
            raise InputError(
                "Signing is for the person whose key it is, not for a model or a tool.",
                next_step="Read the item, then sign it yourself: rye sign REF.",
            )
        found = _files(pattern, own_space(self._spaces, space, "signed"))
        files, skipped = _without_records(found, pattern)
        return evolve(self._sign(files), skipped=skipped)

    async def on_behalf(
        self, *patterns: str, ctx: CallContext, space: Literal["project", "user"] = "project"
    ) -> SignReport:
        """Sign the items that a model, a tool or an MCP client asks for, if the host approves.

        The caller needs the capability of each item by its name: no wildcard grants it. Exactly
        the approved content is signed. Configuration is approved file by file.

        Source: decision 13.
        """
        place = own_space(self._spaces, space, "signed")
        files: Files = ()
        for pattern in patterns:
            if pattern.partition(":")[0] not in KIND_FOLDERS:
                raise InputError(
                    f"{pattern!r} doesn't say what kind of item it names.",
                    next_step="Write tool:acme/name, or a glob such as tool:acme/*.",
                )
            found = await run_in_thread(find_files, place, pattern)
            files += _without_records(found, pattern)[0]
        self._keys.load()  # without a key there is nothing to approve
        for kind, _, relative in files:
            check_name(kind, relative)
            check_capability("sign", ItemRef.of_file(kind, relative), ctx.capabilities)
        candidates = await run_in_thread(self._candidates, files, place)
        alone = [
            (candidate,) for candidate in candidates if candidate.item_id.startswith("config:")
        ]
        together = tuple(
            candidate for candidate in candidates if not candidate.item_id.startswith("config:")
        )
        for asked in (together, *alone):
            if asked:
                request = ApprovalRequest("sign", place.label, asked, ctx.call_id)
                await ask(self._approve, request)
        approved = {candidate.path: candidate.content_hash for candidate in candidates}
        return await run_in_thread(self._sign, files, approved)

    def _sign(self, files: Files, approved: Mapping[Path, str] | None = None) -> SignReport:
        key = self._keys.load()
        signed: list[SignedFile] = []
        failed: list[tuple[Path, str]] = []
        # Runtimes come first: a signed one adds the comment syntax of later files.
        for kind, path, relative in sorted(files, key=_is_no_runtime):
            file_types = self._file_types() if comment_form(path.suffix) is None else {}
            content_hash = approved[path] if approved is not None else None
            try:
                signed.append(
                    sign_file(
                        path,
                        kind,
                        relative,
                        key,
                        file_types=file_types,
                        content_hash=content_hash,
                        is_users_own=path.is_relative_to(self._spaces.user.root),
                    )
                )
            except (SigningError, LinkLeavesSpace) as error:
                if len(files) == 1:
                    raise
                failed.append((path, str(error)))
        problems = [(one.path, _problem(one)) for one in signed]
        unreadable = tuple((path, problem) for path, problem in problems if problem)
        return SignReport(tuple(signed), tuple(failed), unreadable=unreadable)

    def _candidates(self, files: Files, space: Space) -> tuple[FileToApprove, ...]:
        return tuple(self._wish(*file, space) for file in files)

    def _wish(self, kind: str, path: Path, relative: str, space: Space) -> FileToApprove:
        try:
            content, _ = read_digest(str(path), max_bytes=MAX_ITEM_BYTES)
        except OSError as problem:
            raise SigningError(
                f"{path} can't be read: {problem.strerror or problem}.",
                next_step="See that it is a plain file that you may read.",
            ) from problem
        state: Literal["signed", "unsigned", "changed"] = "signed"
        try:
            self._verifier.verify(
                ItemSource(ItemRef.of_file(kind, relative), path, space, relative)
            )
        except UnsignedItem:
            state = "unsigned"
        except IntegrityError:
            state = "changed"
        parts = split_content(content, comment_form(path.suffix, self._file_types()))
        return file_to_approve(
            f"{kind}:{relative}",
            path,
            parts.content_hash,
            state,
            parts.before + parts.after,
            size_bytes=len(content),
        )


def _problem(signed: SignedFile) -> str:
    """Return why a signed document or directive can't be read; empty where it can."""
    path = signed.path
    try:
        if signed.kind == "directive" and path.suffix == ".md":
            from ryecore.directives.parser import parse_directive  # noqa: PLC0415 - only for them

            parse_directive(path.read_bytes(), path)
        elif signed.kind == "tool" and path.suffix in DOCUMENT_EXTENSIONS:
            parse_document(path.read_bytes(), path)
    except RyeError as error:
        return error.message.partition("\n")[0]
    except OSError as error:  # it was removed after it was signed
        return error.strerror or str(error)
    return ""


def _without_records(files: Files, pattern: str) -> tuple[Files, tuple[Path, ...]]:
    """Remove the records of threads that a glob matches; one named exactly is refused later."""
    if not any(mark in pattern for mark in "*?["):
        return files, ()
    records = tuple(path for kind, path, relative in files if is_export(kind, relative))
    return tuple(file for file in files if file[1] not in set(records)), records


def _is_no_runtime(file: tuple[str, Path, str]) -> bool:
    kind, _, relative = file
    return kind != "tool" or not relative.startswith(f"{RUNTIMES_FOLDER}/")


def _files(pattern: str, space: Space) -> Files:
    kind, colon, _ = pattern.partition(":")
    if not (colon and kind in KIND_FOLDERS):
        path = file_called(pattern)
        if path is not None:
            kind, relative = place_of(path)
            return ((kind, path, relative),)
        with suppress(InvalidItemId):  # a glob without a kind, for one
            return find_files(space, str(named(pattern, (space,))))
    return find_files(space, pattern)
