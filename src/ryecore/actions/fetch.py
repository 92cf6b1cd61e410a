"""The fetch action: read and verify one item, and optionally copy it to another space."""

import base64
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal

from attrs import evolve

from ryecore.actions.approval import ask, file_to_approve
from ryecore.display.text import Rendered, StyledText, status_mark
from ryecore.errors import (
    AmbiguousItem,
    InputError,
    InvalidItemId,
    ItemError,
    ItemNotFound,
    RyeError,
)
from ryecore.frozen import frozen
from ryecore.items.description import ItemDescription, describe
from ryecore.items.files import check_links, writable_folder, write_atomically
from ryecore.items.refs import ItemRef, check_item_id
from ryecore.items.signature import SIDECAR, FileTypesReader, comment_form
from ryecore.items.spaces import EXTENSIONS, ItemSource, Space, Spaces, locate, refs_of
from ryecore.items.verification import MAX_SIDECAR_BYTES, VerifiedItem
from ryecore.lillux.digests import read_digest
from ryecore.lillux.event_loop import run_in_thread
from ryecore.policy import CallContext, allows, capability_of
from ryecore.policy.permissions import ApprovalRequest, Approve, check_capability
from ryecore.state.exports import AttestedExport, ExportVerifier

__all__ = ["CopiedItem", "FetchAction", "FetchedItem"]


@frozen
class CopiedItem:
    """A copy of an item; `problem` says why it doesn't verify there yet, if it doesn't."""

    space: Space
    path: Path
    problem: str | None


_MAX_LINES: Final = 40


@frozen(repr=False)
class FetchedItem(Rendered):
    """A fetched item, read and verified.

    Attributes:
        item: The verified item, or the export of a thread with what proves its record.
        description: Its own description.
        shadows: The copies of this id in later spaces.
        shadowed_by: The copies in earlier spaces, which an execution would use instead.
        copied: The copy, if one was requested.
    """

    item: VerifiedItem | AttestedExport
    description: ItemDescription
    shadows: tuple[tuple[Path, Space], ...] = ()
    shadowed_by: tuple[tuple[Path, Space], ...] = ()
    copied: CopiedItem | None = None

    @property
    def path(self) -> Path:
        """The file."""
        return self.item.source.path

    @property
    def is_record(self) -> bool:
        """Whether the item is the record of a thread, whose text no author has signed."""
        return isinstance(self.item, AttestedExport)

    @property
    def content(self) -> str:
        """The raw text with its signature; base64 where the file isn't UTF-8."""
        return self._encoded()[0]

    def _encoded(self) -> tuple[str, str]:
        try:
            return self.item.content.decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            return base64.b64encode(self.item.content).decode(), "base64"

    def to_dict(self) -> dict[str, object]:
        """Return the response object for models and MCP clients."""
        source, said = self.item.source, self.description
        content, encoding = self._encoded()
        document: dict[str, object] = {
            "status": "success",
            "mode": "id",
            "type": source.ref.kind,
            "item_id": str(source.ref),
            "content": content,
            "encoding": encoding,
            "metadata": {
                "name": said.name,
                "path": str(source.path),
                "extension": source.path.suffix,
                "version": said.version,
                "title": said.title,
                "description": said.description,
                "category": said.category,
                "tags": list(said.tags),
            },
            "path": str(source.path),
            "source": source.space.name,
            "space": source.space.label,
            "integrity": self.item.integrity,
            "key_fp": self.item.fingerprint,
            "record": self.is_record,
            "verified": self.item.is_verified,
            "shadows": _places(self.shadows),
            "shadowed_by": _places(self.shadowed_by),
        }
        if self.copied is not None:
            document["copied_to"] = self.copied.space.name
            document["destination_path"] = str(self.copied.path)
            document["destination_verified"] = self.copied.problem is None
            if self.copied.problem is not None:
                document["warnings"] = [self.copied.problem]
        return document

    def render(self) -> StyledText:
        """Render the item for a terminal or a notebook: its signer, and its first lines."""
        source, verified = self.item.source, self.item.is_verified
        text = StyledText()
        text.line(
            status_mark("ok" if verified else "warning"),
            (str(source.ref), "strong"),
            (f"  {self.item.integrity[:12]}", "good" if verified else "warn"),
            ("  record of a thread, untrusted text" if self.is_record else "", "warn"),
            (f"  {source.space.label}  {source.path}", "dim"),
        )
        lines = self.content.splitlines()
        for line in lines[:_MAX_LINES]:
            text.line("  ", line)
        if len(lines) > _MAX_LINES:
            text.line((f"  … {len(lines) - _MAX_LINES} more lines", "dim"))
        return text

    def __repr__(self) -> str:
        return f"FetchedItem({str(self.item.source.ref)!r}, {self.item.source.space.label})"


def _places(copies: tuple[tuple[Path, Space], ...]) -> list[dict[str, str]]:
    return [{"path": str(path), "space": space.label} for path, space in copies]


class FetchAction:
    """The fetch action. Items are verified, and exports proved, before they are read or copied."""

    def __init__(
        self,
        spaces: Spaces,
        verifier: ExportVerifier,
        file_types: FileTypesReader,
        approve: Approve | None,
    ) -> None:
        self._spaces = spaces
        self._verifier = verifier
        self._file_types = file_types
        self._approve = approve

    async def __call__(
        self,
        item: str | ItemRef,
        ctx: CallContext,
        *,
        source: Literal["project", "user", "system"] | None = None,
        destination: Literal["project", "user"] | None = None,
        overwrite: bool = False,
    ) -> FetchedItem:
        """Fetch an item. A model needs its capability, and the host's approval for a copy."""
        try:
            ref = item if isinstance(item, ItemRef) else self._parse(item, ctx)
            _check_options(source, destination)
            check_capability("fetch", ref, ctx.capabilities)
            found = await run_in_thread(self._fetch, ref, source)
            if destination is None:
                return found
            if isinstance(found.item, AttestedExport):
                raise InputError(
                    f"{ref} is the record of a thread, and records aren't copied as items.",
                    next_step="Write what you need of it into an item of your own.",
                )
            space = self._spaces.project if destination == "project" else self._spaces.user
            return await self._copied(found, found.item, space, ctx, overwrite=overwrite)
        except RyeError as error:
            error.during(str(item))
            raise

    def _parse(self, item: str, ctx: CallContext) -> ItemRef:
        if not isinstance(item, str) or not item:
            raise InputError(
                "Provide item_id or query+scope.", next_step="Pass tool:ID, for example."
            )
        if ":" in item:
            return ItemRef.parse(item)
        there = [
            str(ref)
            for ref in refs_of(check_item_id(item), [space.root for space in self._spaces])
            if ctx.capabilities is None
            or allows(ctx.capabilities, capability_of("fetch", ref.kind, ref.id))
        ]
        if not there:
            return ItemRef.parse(item)
        raise InvalidItemId(
            f"{item!r} doesn't say what kind of item it names.",
            next_step=f"Write {' or '.join(there)}.",
            given=item,
        )

    def _fetch(self, ref: ItemRef, space: str | None) -> FetchedItem:
        more = tuple(sorted(self._file_types()))
        wanted = [one for one in self._spaces if space in (None, one.name)]
        source = locate(ref, wanted, more_extensions=more)
        verified = self._verifier.verify(source)
        around = [(_file_in(one, ref, more), one) for one in self._spaces]
        place = [one for _, one in around].index(source.space)
        return FetchedItem(
            verified,
            describe(ref.kind, source.relative, verified.content),
            tuple((path, one) for path, one in around[place + 1 :] if path is not None),
            tuple((path, one) for path, one in around[:place] if path is not None),
        )

    async def _copied(
        self,
        found: FetchedItem,
        item: VerifiedItem,
        space: Space,
        ctx: CallContext,
        *,
        overwrite: bool,
    ) -> FetchedItem:
        source = item.source
        path = space.folder(source.ref.kind) / source.relative
        is_there = await run_in_thread(
            partial(_check_place, item, path, space, overwrite=overwrite)
        )
        if is_there != "same":
            if ctx.capabilities is not None:
                candidate = file_to_approve(
                    f"{source.ref.kind}:{source.relative}",
                    path,
                    item.integrity,
                    "new" if is_there == "nothing" else "replaces",
                    item.content,
                )
                request = ApprovalRequest("copy", space.label, (candidate,), ctx.call_id)
                await ask(self._approve, request)
            await run_in_thread(partial(self._write, item, path, space, replace=overwrite))
        problem = None
        try:
            self._verifier.verify(ItemSource(source.ref, path, space, source.relative))
        except RyeError as refusal:
            problem = str(refusal)
        return evolve(found, copied=CopiedItem(space, path, problem))

    def _write(self, item: VerifiedItem, path: Path, space: Space, *, replace: bool) -> None:
        kind = item.source.ref.kind
        try:
            with writable_folder(path.parent, space.folder(kind), space.boundary) as folder:
                self._write_both(item, folder / path.name, replace=replace)
        except FileExistsError:
            raise _other_file(path) from None
        except OSError as problem:
            raise ItemError(
                f"{path} can't be written: {problem.strerror or problem}.",
                next_step="See that its folder can be written.",
            ) from problem

    def _write_both(self, item: VerifiedItem, path: Path, *, replace: bool) -> None:
        source = item.source.path
        if item.is_verified and comment_form(source.suffix, self._file_types()) is None:
            # The signature first: an interrupted copy leaves at worst a signature without its file.
            sidecar, _ = read_digest(f"{source}{SIDECAR}", max_bytes=MAX_SIDECAR_BYTES)
            write_atomically(path.with_name(path.name + SIDECAR), sidecar)
        write_atomically(path, item.content, replace=replace)


def _check_options(source: str | None, destination: str | None) -> None:
    if source not in (None, "project", "user", "system"):
        raise InputError(
            f"Unknown source {source!r}.",
            next_step='Write "project", "user" or "system", or leave it out.',
        )
    if destination not in (None, "project", "user"):
        raise InputError(
            f"Nothing can be copied to {destination!r}.",
            next_step='Write "project" or "user": system space is sealed.',
        )


def _file_in(space: Space, ref: ItemRef, more: tuple[str, ...]) -> Path | None:
    """Return the path of the item in one space; None where it isn't there."""
    stem = f"{space.folder(ref.kind)}/{ref.id}"
    if not any(os.path.lexists(stem + one) for one in (*EXTENSIONS[ref.kind], *more)):
        return None  # quicker than an error with the ids that are similar
    with suppress(ItemNotFound):
        try:
            return locate(ref, (space,), more_extensions=more).path
        except AmbiguousItem as both:
            return Path(both.candidates[0])
        except RyeError:
            pass
    return None


def _check_place(
    item: VerifiedItem, path: Path, space: Space, *, overwrite: bool
) -> Literal["nothing", "same", "other"]:
    """Check the destination of a copy and the folders above it, and return what exists there."""
    source = item.source
    if source.space == space:
        raise InputError(
            f"{source.ref} stands in {space.label} space already: {source.path}.",
            next_step="Name another destination, or another source.",
        )
    other = _file_in(space, source.ref, (source.path.suffix,))
    if other is not None and other != path:
        raise InputError(
            f"{space.label} space holds {source.ref} as {other} already; with both, the id "
            "would be ambiguous.",
            next_step="Rename or remove that file.",
        )
    check_links(path.parent, space.folder(source.ref.kind), space.boundary)
    try:
        there = read_digest(str(path))[0]
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    except OSError:
        there = None
    if there == item.content:
        return "same"
    if overwrite:
        return "other"
    raise _other_file(path)


def _other_file(path: Path) -> InputError:
    return InputError(
        f"{path} is another file.", next_step="Compare the two; to replace it, pass overwrite."
    )
