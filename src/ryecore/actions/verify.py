"""The verify action, for one item or all that a glob matches.

Exports of threads are records: each is proved by its record's signature, and reported apart.
"""

import os
from pathlib import Path

from ryecore.actions.approval import own_space
from ryecore.display.text import Rendered, StyledText, status_mark
from ryecore.errors import RyeError, UnsignedItem
from ryecore.frozen import frozen
from ryecore.items.paths import file_called, source_at
from ryecore.items.refs import KIND_FOLDERS, ItemRef, is_export
from ryecore.items.signature import FileTypesReader
from ryecore.items.signing import find_files
from ryecore.items.spaces import ItemSource, Spaces, locate, named
from ryecore.items.verification import VerifiedItem
from ryecore.policy import CallContext
from ryecore.policy.permissions import check_capability
from ryecore.state.exports import AttestedExport, ExportVerifier

__all__ = ["VerifyAction", "VerifyReport", "verified_item"]


@frozen(repr=False)
class VerifyReport(Rendered):
    """The report of a verification.

    Attributes:
        verified: The items that verified.
        failed: The files that did not verify, each with the error.
        records: The exports of threads that this user's run key attested.
        failed_records: The exports of threads that could not be proved, each with the error.
    """

    verified: tuple[VerifiedItem, ...]
    failed: tuple[tuple[Path, RyeError], ...] = ()
    records: tuple[AttestedExport, ...] = ()
    failed_records: tuple[tuple[Path, RyeError], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-ready object."""
        return {
            "status": "success" if not self.failed else "error",
            "verified": list(map(_shown, self.verified)),
            "failed": [_refusal(*one) for one in self.failed],
            "total": len(self.verified) + len(self.failed),
            "records": {
                "attested": list(map(_shown, self.records)),
                "failed": [_refusal(*one) for one in self.failed_records],
                "total": len(self.records) + len(self.failed_records),
            },
        }

    def render(self) -> StyledText:
        """Render the report for a terminal or a notebook, each failure with its next step."""
        text = StyledText()
        for item in self.verified:
            text.line(*item.verdict(), (f"  {item.source.path}", "dim"))
        for path, error in self.failed:
            text.failure(str(path), error)
        text.line(f"{len(self.verified)} of {len(self.verified) + len(self.failed)} verified")
        for path, error in self.failed_records:
            text.line(status_mark("warning"), (str(path), "strong"), ("  record", "warn"))
            text.line("  ", (error.message, "warn"))
            text.next_step(error.next_step)
        total = len(self.records) + len(self.failed_records)
        if total:
            attested = f"{len(self.records)} of {total} records of threads attested by you"
            text.line((attested, "dim"))
        return text

    def __repr__(self) -> str:
        return f"VerifyReport({len(self.verified)} verified, {len(self.failed)} failed)"


def verified_item(item: VerifiedItem) -> dict[str, object]:
    """Return a verified item as a JSON-ready object."""
    ref, space = str(item.source.ref), item.source.space.label
    return {"status": "success", **_shown(item), "item_id": ref, "space": space}


def _shown(item: VerifiedItem | AttestedExport) -> dict[str, object]:
    return {
        "item_id": f"{item.source.ref.kind}:{item.source.relative}",
        "path": str(item.source.path),
        "integrity": item.integrity,
        "key_fp": item.fingerprint,
    }


def _refusal(path: Path, error: RyeError) -> dict[str, str]:
    return {"path": str(path), "error": str(error), "error_type": error.error_type}


class VerifyAction:
    """The verify action, which runs nothing."""

    def __init__(
        self, spaces: Spaces, verifier: ExportVerifier, file_types: FileTypesReader
    ) -> None:
        self._spaces = spaces
        self._verifier = verifier
        self._file_types = file_types

    def __call__(self, ref: str, ctx: CallContext) -> VerifiedItem:
        """Verify one item, by its ref, `kind:path.ext`, or its path below a space's `.ai`.

        The record of a thread is refused, because no author has signed it.
        """
        try:
            if (
                ctx.capabilities is not None
            ):  # first, so that a caller that may not read the item learns nothing of it
                check_capability("fetch", _named_by_model(ref), ctx.capabilities)
            source = self._source(ref)
            item = self._verifier.verify(source)
            if isinstance(item, AttestedExport):
                raise UnsignedItem(
                    f"{source.path} is the record of a thread, as this user's run key attested "
                    f"it ({item.fingerprint}). It isn't an item that an author has signed.",
                    next_step=f"Read it as text that isn't trusted: rye fetch {source.ref}",
                    path=source.path,
                )
            return item
        except RyeError as error:
            error.during(ref)
            raise

    def all(self, pattern: str, space: str, ctx: CallContext) -> VerifyReport:
        """Verify every file that a glob matches in the project's or the user's space."""
        verified: list[VerifiedItem] = []
        failed: list[tuple[Path, RyeError]] = []
        records: list[AttestedExport] = []
        failed_records: list[tuple[Path, RyeError]] = []
        place = own_space(self._spaces, space, "verified by a glob")
        for kind, path, relative in find_files(place, pattern):
            ref = ItemRef.of_file(kind, relative)
            check_capability("fetch", ref, ctx.capabilities)
            try:
                item = self._verifier.verify(ItemSource(ref, path, place, relative))
            except RyeError as error:
                (failed_records if is_export(kind, relative) else failed).append((path, error))
                continue
            if isinstance(item, AttestedExport):
                records.append(item)
            else:
                verified.append(item)
        return VerifyReport(tuple(verified), tuple(failed), tuple(records), tuple(failed_records))

    def _source(self, ref: str) -> ItemSource:
        kind, colon, name = ref.partition(":")
        if not (colon and kind in KIND_FOLDERS):
            path = file_called(ref)
            if path is None:
                return locate(named(ref, self._spaces), self._spaces)
            return source_at(path, self._spaces)
        if "." in name:
            for space in self._spaces:
                folder = space.folder(kind)
                path = folder / name
                if os.path.isfile(path) and path.resolve().is_relative_to(folder.resolve()):
                    return source_at(path, self._spaces)
        return locate(
            ItemRef.parse(ref), self._spaces, more_extensions=tuple(sorted(self._file_types()))
        )


def _named_by_model(ref: str) -> ItemRef:
    """Parse a canonical ref or `kind:path.ext`; a model can't name an item by its file path."""
    kind, _, name = ref.partition(":")
    if kind in KIND_FOLDERS and "." in name:
        return ItemRef.of_file(kind, name)
    return ItemRef.parse(ref)
