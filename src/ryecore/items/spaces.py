"""The three spaces, and the lookup of items in them."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from attrs import evolve

from ryecore.errors import (
    AmbiguousItem,
    ConfigError,
    InvalidItemId,
    ItemError,
    ItemNotFound,
    RyeError,
)
from ryecore.frozen import frozen
from ryecore.items.refs import KIND_FOLDERS, ItemRef, check_item_id
from ryecore.lillux.digests import sha256_hex
from ryecore.lillux.witness import Evidence

__all__ = [
    "EXTENSIONS",
    "SKIPPED_FOLDERS",
    "ItemSource",
    "Space",
    "SpaceName",
    "Spaces",
    "built_in_space",
    "discover_bundles",
    "locate",
    "named",
    "project_digest",
    "refs_of",
    "similar_ids",
]

SpaceName = Literal["project", "user", "system"]
PRECEDENCE: Final[Mapping[SpaceName, int]] = {"project": 3, "user": 2, "system": 1}
BUILT_IN_BUNDLE: Final = "ryecore"
_BUNDLES: Final = "rye.bundles"
"""The entry-point group of the bundles of installed packages."""

_MAX_FOLDERS_LOOKED_THROUGH: Final = 500
_MAX_REFS_REMEMBERED: Final = 1024

_RUNNABLE: Final = (
    ".py", ".yaml", ".yml", ".js", ".ts", ".mjs", ".cjs", ".sh", ".toml", ".json",
)  # fmt: skip
EXTENSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "tool": _RUNNABLE,
    "directive": (".md",),
    "knowledge": (".md", ".yaml", ".yml"),
    "config": (".yaml", ".yml", ".toml", ".json"),
}
"""The extensions that an id is looked up with, in their fixed order."""
SKIPPED_FOLDERS: Final = frozenset({"__pycache__", ".git", ".venv", "venv", "node_modules"})
"""The folders that hold no items: caches, version control and installed packages."""


@frozen
class Space:
    """A folder of items.

    Attributes:
        name: project, user or system.
        root: The `.ai` folder.
        bundle: The id of the system bundle; empty elsewhere.
    """

    name: SpaceName
    root: Path
    bundle: str = ""

    @property
    def label(self) -> str:
        """The name that traces show, such as `project` or `system:ryecore`."""
        return f"{self.name}:{self.bundle}" if self.bundle else self.name

    @property
    def precedence(self) -> int:
        """3 for project, 2 for user, 1 for every system bundle."""
        return PRECEDENCE[self.name]

    @property
    def is_built_in(self) -> bool:
        """Whether this is the sealed bundle that comes with ryecore."""
        return self.name == "system" and self.bundle == BUILT_IN_BUNDLE

    @property
    def boundary(self) -> Path | None:
        """The folder that links may not leave where something is written; None: the user's own."""
        return self.root.parent if self.name == "project" else None

    def folder(self, kind: str) -> Path:
        """Return the folder that holds a kind of item."""
        return self.root / KIND_FOLDERS[kind]


@frozen
class Spaces:
    """The spaces of one project, in the order in which they are searched."""

    project: Space
    user: Space
    system: tuple[Space, ...]

    def __iter__(self) -> Iterator[Space]:
        return iter((self.project, self.user, *self.system))

    def from_space(self, name: SpaceName) -> tuple[Space, ...]:
        """Return the spaces that an element found in this space may depend on.

        Source: decision 15.
        """
        if name == "project":
            return (self.project, self.user, *self.system)
        return (self.user, *self.system) if name == "user" else self.system


@frozen
class ItemSource:
    """The location of an item, whose file hasn't been read.

    Its relative path, below the kind's folder and with extension, is its signed identity;
    `shadowed` are files of the same id in later spaces.
    """

    ref: ItemRef
    path: Path
    space: Space
    relative: str
    shadowed: tuple[tuple[Path, Space], ...] = ()

    @property
    def kind_folder(self) -> Path:
        """The folder that holds this kind in this space."""
        return self.space.folder(self.ref.kind)


def project_digest(project: Path) -> str:
    """Return the 32 hex digits that identify a project's folder in signed user configuration."""
    return sha256_hex(os.fsencode(os.path.realpath(project)))[:32]


def built_in_space() -> Space:
    """Return the sealed bundle that comes with ryecore."""
    return Space("system", Path(__file__).parents[1] / "system" / ".ai", BUILT_IN_BUNDLE)


def discover_bundles() -> tuple[Space, ...]:
    """Return the built-in bundle, then those that installed packages offer, by entry-point name.

    A package offers one through the entry-point group `rye.bundles`: a callable that returns a
    mapping with `bundle_id` and `root_path`, the folder that holds `.ai`.
    """
    spaces = [built_in_space()]
    if not _is_any_bundle_offered():
        return tuple(spaces)
    from importlib.metadata import entry_points  # noqa: PLC0415 - a large import, used only here

    for point in sorted(entry_points(group=_BUNDLES), key=lambda point: point.name):
        try:
            described = point.load()()
            bundle, root = str(described["bundle_id"]), Path(described["root_path"])
        except Exception as problem:
            raise ConfigError(
                f"The system bundle {point.name!r} ({point.value}) can't be loaded: {problem}.",
                next_step=f"Mend or uninstall the package that offers it in {_BUNDLES!r}.",
            ) from problem
        root = root if root.name == ".ai" else root / ".ai"
        if all(space.bundle != bundle for space in spaces):
            spaces.append(Space("system", root, bundle))
    return tuple(spaces)


def _is_any_bundle_offered() -> bool:
    """Return whether an installed package may offer a bundle.

    `importlib.metadata` takes several times as long to import, and to parse all entry points.
    """
    if any(hasattr(one, "find_distributions") for one in sys.meta_path if one is not PathFinder):
        return True
    for folder in (one or "." for one in sys.path):
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            continue
        except OSError:  # an archive, for one
            return True
        for name in names:
            if not name.endswith((".dist-info", ".egg-info", ".egg")):
                continue
            if name.endswith(".egg"):
                return True
            try:
                path = f"{folder}/{name}/entry_points.txt"
                with open(path, "rb", buffering=0) as points:
                    if _BUNDLES.encode() in points.read():
                        return True
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return True
    return False


def locate(
    ref: ItemRef,
    spaces: Iterable[Space],
    *,
    more_extensions: Iterable[str] = (),
    evidence: Evidence | None = None,
    others: set[str] | None = None,
) -> ItemSource:
    """Find the file of an item: the first space that holds it wins.

    Args:
        more_extensions: Extensions that signed runtimes add, behind the fixed order.
        evidence: Collects the absent paths, so that a new file before it is noticed.
        others: Collects the other extensions of this stem, up to the space where it was found.
    """
    check_item_id(ref.id)  # a ref can be made without `ItemRef.parse`
    extensions = (*EXTENSIONS[ref.kind], *more_extensions)
    found: ItemSource | None = None
    shadowed: list[tuple[Path, Space]] = []
    spaces = tuple(spaces)
    for space in spaces:
        folder = f"{space.root}/{ref.folder}"
        stem = f"{folder}/{ref.id}"
        # The built-in bundle is sealed as a whole: nothing is added to it.
        watched = evidence if found is None and not space.is_built_in else None
        matches = _matches(stem, extensions, watched, others if found is None else None)
        if not matches:
            continue
        if found is not None:
            shadowed.append((Path(matches[0]), space))
            continue
        if len(matches) > 1:
            raise AmbiguousItem(
                f"{ref} is two files in {space.label} space: {' and '.join(matches)}.",
                next_step="Rename or remove one of them.",
                candidates=tuple(matches),
            )
        _check_inside(ref, matches[0], folder)
        found = ItemSource(ref, Path(matches[0]), space, matches[0][len(folder) + 1 :])
    if found is None:
        raise _not_found(ref, spaces)
    return evolve(found, shadowed=tuple(shadowed)) if shadowed else found


_parsed: Final = lru_cache(_MAX_REFS_REMEMBERED)(ItemRef.parse)


def named(text: str, spaces: Iterable[Space]) -> ItemRef:
    """Return the ref that a text names; a bare id names the directive, else the tool.

    Source: decision 10.
    """
    if ":" in text:
        return _parsed(text)
    check_item_id(text)
    spaces = tuple(spaces)
    both = (ItemRef("directive", text), ItemRef("tool", text))
    found = [ref for ref in both if _exists(ref, spaces)]
    if len(found) == 2:
        raise AmbiguousItem(
            f"{text!r} is both {found[0]} and {found[1]}.",
            next_step="Write which one you mean.",
            candidates=tuple(map(str, found)),
        )
    return found[0] if found else both[1]


def refs_of(item_id: str, roots: Iterable[str | Path]) -> tuple[ItemRef, ...]:
    """Return the items of any kind that have an id."""
    roots = tuple(roots)
    refs = [ItemRef(kind, item_id) for kind in KIND_FOLDERS]
    return tuple(
        ref
        for ref in refs
        if any(
            os.path.isfile(f"{root}/{ref.folder}/{item_id}{extension}")
            for root in roots
            for extension in EXTENSIONS[ref.kind]
        )
    )


def similar_ids(kind: str, name: str, folders: Iterable[str | Path]) -> tuple[str, ...]:
    """Return the ids of a kind's items that are similar to a name, the nearest first."""
    known = {
        os.path.relpath(os.path.join(parent, file), folder).rpartition(".")[0]
        for folder in folders
        for parent, _, files in islice(os.walk(folder), _MAX_FOLDERS_LOOKED_THROUGH)
        for file in files
        if file.endswith(EXTENSIONS[kind])
    }
    from difflib import get_close_matches  # noqa: PLC0415 - only for errors

    return tuple(get_close_matches(name, sorted(known), n=3))


def _exists(ref: ItemRef, spaces: Iterable[Space]) -> bool:
    try:
        locate(ref, spaces)
    except ItemNotFound:
        return False
    except RyeError:
        return True
    return True


def _not_found(ref: ItemRef, spaces: Sequence[Space]) -> ItemNotFound:
    """Return the error with similar ids."""
    searched: dict[str, str] = {}
    for space in spaces:
        folder = f"{space.root}/{ref.folder}"
        searched[folder] = f"{space.label} ({folder})"
    similar = similar_ids(ref.kind, ref.id, searched)
    meant = [
        *(other for other in refs_of(ref.id, map(os.path.dirname, searched)) if other != ref),
        *(ItemRef(ref.kind, item_id) for item_id in similar),
    ]
    return ItemNotFound(
        f"{ref} was not found in {', '.join(searched.values())}.",
        next_step=(
            f"Did you mean {' or '.join(map(str, meant))}?"
            if meant
            else "An id is the path below one of these folders, without the extension. See what "
            f"there is: rye search '*' --scope {ref.kind}"
        ),
        searched=tuple(searched.values()),
        similar=similar,
    ).during(str(ref))


def _matches(
    stem: str, extensions: Sequence[str], evidence: Evidence | None, others: set[str] | None
) -> list[str]:
    """Return the files of a stem in the order of extensions; collect absent and other ones."""
    folder, _, name = stem.rpartition("/")
    try:
        if others is None:  # the same time in a folder of many files
            ends = [one for one in extensions if _is_there(stem + one)]
        else:
            start = f"{name}."
            ends = [one[len(name) :] for one in os.listdir(folder) if one.startswith(start)]
    except (FileNotFoundError, NotADirectoryError):
        ends = []
    except OSError as problem:
        raise ItemError(
            f"{folder} can't be searched: {problem.strerror}.",
            next_step="See that you may read the folder.",
        ) from problem
    matches = [stem + extension for extension in extensions if extension in ends]
    if evidence is not None:
        for extension in extensions:
            if extension not in ends:
                evidence.absent(stem + extension)
    if others is not None and ends:
        others |= {end[end.rindex(".") :] for end in ends} - set(extensions)
    return matches


def _is_there(path: str) -> bool:
    """Return whether there is a file or a link; OSError where that can't be told."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _check_inside(ref: ItemRef, path: str, folder: str) -> None:
    """Refuse a link that leads out of the folder; ids have no dots, so nothing else can."""
    below = path
    while len(below) > len(folder):
        if os.path.islink(below):
            break
        below = below[: below.rindex("/")]
    else:
        return
    real = os.path.realpath(path)
    if not Path(real).is_relative_to(os.path.realpath(folder)):
        raise InvalidItemId(
            f"{ref} is a link that leaves its folder: {path} leads to {real}.",
            next_step=f"Put the file itself below {folder}.",
            given=str(ref),
        )
