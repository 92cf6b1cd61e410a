"""The catalog: the items that clients are offered, with the names that they have there.

It holds only ids. What an item says of itself is read, and verified, by who lists or uses it.
"""

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal

import anyio.to_thread

from ryecore.caches import BoundedDict
from ryecore.chain.builder import FileTypes
from ryecore.errors import RyeError
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.lillux.digests import sha256_hex
from ryecore.mcp_server.offer import Offer, OfferReader, matches
from ryecore.policy import allows, capability_of
from ryecore.rye import Rye
from ryecore.search.walk import ItemListing, ListedItem, places

__all__ = ["Catalog", "Entry", "OfferOptions", "OfferedKind", "ServedProject", "unique_names"]

OfferedKind = Literal["tool", "directive", "knowledge"]

_ACTIONS: Final[Mapping[OfferedKind, Literal["execute", "fetch"]]] = {
    "tool": "execute", "directive": "execute", "knowledge": "fetch",
}  # fmt: skip
_MAX_NAME: Final = 64
"""The longest name that every vendor's models can call."""
_DIGEST_CHARS: Final = 8
_MAX_SAID: Final = 1000
_NOTHING: Final = Offer(verbs=False, directives=(), knowledge=())

_logger = logging.getLogger(__name__)


@frozen
class OfferOptions:
    """What the host adds to the offer of each project.

    Attributes:
        tools: Further patterns of tools that are MCP tools of their own.
        verbs: Whether there may be `rye_execute` and its siblings.
        both: Whether results are sent as text and as structured content.
    """

    tools: tuple[str, ...] = ()
    verbs: bool = True
    both: bool = False


@frozen(eq=False)
class ServedProject:
    """A project that is served, its label in names and URIs, and what it offers."""

    label: str
    rye: Rye
    offer: Callable[[], Offer]
    file_types: FileTypes
    listings: Mapping[OfferedKind, ItemListing]


@frozen(eq=False)
class Entry:
    """An item that is offered, and its name for clients."""

    project: ServedProject
    ref: ItemRef
    name: str


class Catalog:
    """The items that a client may use and is offered.

    Args:
        ryes: The open projects.
        grants: The client's capabilities: what they don't grant isn't offered.
        options: What the host adds to each project's own offer.
    """

    def __init__(self, ryes: Iterable[Rye], grants: frozenset[str], options: OfferOptions) -> None:
        self._grants = grants
        self._options = options
        self.projects = tuple(_served(ryes))
        self._said: BoundedDict[tuple[str, str], bool] = BoundedDict(_MAX_SAID)
        self._made: dict[OfferedKind, tuple[object, Mapping[str, Entry]]] = {}

    def offer(self, project: ServedProject) -> Offer:
        """Return what a project offers now; nothing where its serve.yaml is broken."""
        try:
            found = project.offer()
        except RyeError as error:
            self.leave_out(f"what {project.label} offers", error)
            return _NOTHING
        options = self._options
        return found.with_options(tools=options.tools, verbs=options.verbs, both=options.both)

    @property
    def page_size(self) -> int:
        """The most entries of one page of a list."""
        return min((self.offer(one).page_size for one in self.projects), default=1)

    @property
    def poll_after_s(self) -> float | None:
        """After how many seconds a client polls for the result of a call; None for never."""
        found = [self.offer(one).poll_after_s for one in self.projects]
        return min((one for one in found if one is not None), default=None)

    @property
    def sends_both(self) -> bool:
        """Whether results are sent as text and as structured content."""
        return any(self.offer(one).results == "both" for one in self.projects)

    @property
    def has_verbs(self) -> bool:
        """Whether there are `rye_execute` and its siblings."""
        return any(self.offer(one).verbs for one in self.projects)

    async def entries(self, kind: OfferedKind, reserved: Iterable[str] = ()) -> Mapping[str, Entry]:
        """Return the offered items of a kind by name, sorted by it; no other has a reserved name.

        They are listed by only their folders: each has yet to be verified.
        """
        call = partial(self._entries, kind, frozenset(reserved))
        return await anyio.to_thread.run_sync(call)

    def fingerprint(self, kind: OfferedKind) -> tuple[object, ...] | None:
        """Return what changes with any file that a list of this kind depends on.

        None where that can't be told.
        """
        found: list[object] = []
        for project in self.projects:
            rye = project.rye
            extensions = project.file_types.extensions() if kind == "tool" else ()
            for place in places(rye.spaces, (kind, "config"), extensions):
                if place.space.is_built_in:
                    continue
                seen = place.fingerprint()
                if seen is None:
                    return None
                found.append(seen)
            found.append(self.offer(project))
        return tuple(found)

    def leave_out(self, what: str, error: RyeError) -> None:
        """Say in the log that something isn't offered, and why; once for each reason."""
        if (what, error.message) not in self._said:
            self._said[what, error.message] = True
            _logger.warning("%s isn't offered: %s", what, error.message)

    def _entries(self, kind: OfferedKind, reserved: frozenset[str]) -> Mapping[str, Entry]:
        listed = [
            (project, self.offer(project), project.listings[kind].items())
            for project in self.projects
        ]
        seen = [reserved, *((offer, items) for _, offer, items in listed)]
        made = self._made.get(kind)
        if made is not None and made[0] == seen:  # quick where the tuples are the same
            return made[1]
        found = [
            (project, ItemRef(kind, one.item_id))
            for project, offer, items in listed
            for one in items
            if self._is_offered(offer, kind, one)
        ]
        prefixed = len(self.projects) > 1
        ids = [f"{project.label}/{ref.id}" if prefixed else ref.id for project, ref in found]
        names = unique_names(ids, reserved)
        entries = {
            name: Entry(project, ref, name)
            for name, (project, ref) in zip(names, found, strict=True)
        }
        self._made[kind] = seen, dict(sorted(entries.items()))
        return self._made[kind][1]

    def _is_offered(self, offer: Offer, kind: OfferedKind, item: ListedItem) -> bool:
        patterns = _patterns(offer, kind)
        is_system = item.space.name == "system"
        needed = capability_of(_ACTIONS[kind], kind, item.item_id)
        return matches(patterns, item.item_id, is_system=is_system) and allows(self._grants, needed)


def unique_names(ids: Sequence[str], reserved: Iterable[str] = ()) -> list[str]:
    """Return a name for each id, of at most 64 letters, digits, `_` and `-`.

    `acme/csv` becomes `acme__csv`. A name that is too long, reserved, or that of two ids ends with
    a digest of its id.
    """
    plain = [one.replace("/", "__") for one in ids]
    taken = Counter([*plain, *reserved])
    return [
        name
        if len(name) <= _MAX_NAME and taken[name] == 1
        else f"{name[: _MAX_NAME - _DIGEST_CHARS - 1]}_{sha256_hex(one.encode())[:_DIGEST_CHARS]}"
        for one, name in zip(ids, plain, strict=True)
    ]


def _served(ryes: Iterable[Rye]) -> Iterable[ServedProject]:
    labels: Counter[str] = Counter()
    for rye in ryes:
        folder = Path(os.path.realpath(rye.project)).name
        label = re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-")[:24] or "project"
        labels[label] += 1
        if labels[label] > 1:
            label = f"{label}-{labels[label]}"
        types = FileTypes(rye.spaces, rye.trust)
        listings: dict[OfferedKind, ItemListing] = {
            "tool": ItemListing(rye.spaces, "tool", types.comment_forms),
            "directive": ItemListing(rye.spaces, "directive", dict),
            "knowledge": ItemListing(rye.spaces, "knowledge", dict),
        }
        yield ServedProject(label, rye, OfferReader(rye.configs), types, listings)


def _patterns(offer: Offer, kind: OfferedKind) -> tuple[str, ...]:
    return {"tool": offer.tools, "directive": offer.directives, "knowledge": offer.knowledge}[kind]
