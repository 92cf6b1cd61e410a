"""Where the verified bytes of a chain stand when they run: in sealed snapshots.

Source: decision 16.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from attrs import evolve, frozen

from ryecore.chain.anchor import find_anchor
from ryecore.chain.model import Chain, ChainElement
from ryecore.chain.spec import AnchorSpec, VerifyDepsSpec
from ryecore.chain.trace import Trace
from ryecore.errors import AnchorError, IntegrityError
from ryecore.items.evidence import Evidence
from ryecore.items.packages import EVERY_FILE, PACKAGE_FOLDERS, lock_of, locked_digest
from ryecore.items.refs import ItemRef
from ryecore.items.sealed import NOWHERE, SealedTree, Seals
from ryecore.items.signing import SIDECAR
from ryecore.items.spaces import ItemSource
from ryecore.items.verification import VerifiedItem, Verifier
from ryecore.lillux.digests import TreeFilter, digest_tree, list_tree, stat_tree
from ryecore.lillux.witness import TreeStat

__all__ = ["Layout", "Sealer"]

Deps = Literal["none", "verified", "unverified"]


@frozen
class Layout:
    """Where a chain's files stand when it runs.

    Attributes:
        tool_path: The tool's file.
        anchor_path: The root of its dependency tree, if it has one.
        runtime_lib: The runtime's library folder, if there is one.
        nowhere: A path at which nothing stands; it lies in the snapshot, whose stat shows it.
        anchor: What the anchor changes in the environment.
        deps: Whether what the tool can import was verified.
        origins: Each sealed folder, and the author's own folder that it is a copy of.
    """

    tool_path: Path
    anchor_path: Path | None
    runtime_lib: Path | None
    nowhere: Path
    anchor: AnchorSpec | None
    deps: Deps
    origins: Mapping[str, str] = {}

    def as_authored(self, text: str) -> str:
        """A text with the author's own paths in place of sealed ones."""
        for sealed, authored in self.origins.items():
            text = text.replace(sealed, authored)
        return text

    @property
    def values(self) -> dict[str, object]:
        """What stands for these places in templates."""
        values: dict[str, object] = {
            "tool_path": str(self.tool_path),
            "tool_source": self.as_authored(str(self.tool_path)),
            "tool_dir": str(self.tool_path.parent),
            "tool_parent": str(self.tool_path.parent.parent),
            "nowhere": str(self.nowhere),
        }
        if self.anchor_path is not None:
            values["anchor_path"] = str(self.anchor_path)
        if self.runtime_lib is not None:
            values["runtime_lib"] = str(self.runtime_lib)
        return values


class Sealer:
    """Verifies what a chain's tool can import, and seals it with the tool.

    Args:
        seals: The folder of snapshots.
        verifier: Verifies dependencies.
    """

    def __init__(self, seals: Seals, verifier: Verifier) -> None:
        self._seals = seals
        self._verifier = verifier

    def lay_out(self, chain: Chain, trace: Trace, evidence: Evidence) -> Layout:
        """Seal a chain's files.

        Args:
            chain: The chain.
            trace: Told how many files were verified and where they are sealed.
            evidence: Told what was seen on disk.

        Returns:
            Where its files stand. In dev mode an unverified tool runs from its own place.

        Raises:
            IntegrityError: A file that the tool can import doesn't verify.
            AnchorError: The dependency tree can't be anchored or sealed.
        """
        tool = chain.head.item
        if tool is None:
            raise AnchorError(f"{chain.head.item_id} has no file to run.")
        owner = next((e for e in chain.elements if e.spec.anchor is not None), None)
        spec = owner.spec.anchor if owner is not None else None
        deps = next(
            (e.spec.verify_deps for e in chain.elements if e.spec.verify_deps is not None),
            VerifyDepsSpec(),
        )
        lib = self._runtime_lib(chain, owner, deps, trace, evidence)
        with trace.failing("seal", item_id=chain.head.item_id):
            root = (
                find_anchor(spec, tool.source.path, tool.source.kind_folder, evidence)
                if spec is not None
                else None
            )
            layout = Layout(tool.source.path, None, lib, self._seals.nowhere, spec, "none")
            if root is None:
                return self._single_file(layout, tool, trace, evidence)
            return self._anchored(layout, tool, root, deps, trace, evidence)

    def _single_file(
        self, layout: Layout, tool: VerifiedItem, trace: Trace, evidence: Evidence
    ) -> Layout:
        if not tool.is_verified:
            return layout
        name = tool.source.path.name
        sealed = self._seals.seal({name: tool.content})
        evidence.tree(sealed.stat)
        trace.add("seal", anchor=None, files=1, digest=sealed.digest, deps="none")
        origins = {**layout.origins, str(sealed.root): str(tool.source.path.parent)}
        return evolve(
            layout,
            tool_path=sealed.root / name,
            nowhere=sealed.root / NOWHERE,
            origins=origins,
        )

    def _anchored(
        self,
        layout: Layout,
        tool: VerifiedItem,
        root: Path,
        deps: VerifyDepsSpec,
        trace: Trace,
        evidence: Evidence,
    ) -> Layout:
        inside = tool.source.path.relative_to(root).as_posix()
        files = self._verify_tree(root, deps, tool, evidence)
        if not tool.is_verified or any(not item.is_verified for item in files.values()):
            trace.add("seal", anchor=str(root), files=len(files), deps="unverified")
            return evolve(layout, anchor_path=root, deps="unverified")
        links = _package_folders(root, deps, evidence)
        locked = [self._is_locked(folder, root, tool, evidence) for folder in links.values()]
        state: Deps = "verified" if all(locked) else "unverified"
        contents = {name: item.content for name, item in files.items()}
        sealed = self._seals.seal({**contents, inside: tool.content}, links)
        evidence.tree(sealed.stat)
        trace.add(
            "seal",
            anchor=str(root),
            files=len(contents | {inside: b""}),
            digest=sealed.digest,
            deps=state,
            linked=sorted(links),
        )
        return evolve(
            layout,
            tool_path=sealed.root / inside,
            anchor_path=sealed.root,
            nowhere=sealed.root / NOWHERE,
            deps=state,
            origins={**layout.origins, str(sealed.root): str(root)},
        )

    def _is_locked(self, folder: Path, root: Path, owner: VerifiedItem, evidence: Evidence) -> bool:
        """Whether a signed lock vouches for a package folder as it is now."""
        lock = lock_of(folder)
        if not lock.exists():
            evidence.absent(str(lock))
            return False
        seen = stat_tree(str(folder), EVERY_FILE)
        digest = locked_digest(self._verify_file(lock, root, owner, evidence))
        evidence.tree(TreeStat(str(folder), EVERY_FILE, seen))
        if digest == digest_tree(str(folder), EVERY_FILE).digest:
            return True
        raise AnchorError(
            f"{folder} is not as it was when {lock} was signed.",
            next_step=f"If the change is right, lock it again: rye sign --packages {folder}",
        )

    def _runtime_lib(
        self,
        chain: Chain,
        owner: ChainElement | None,
        deps: VerifyDepsSpec,
        trace: Trace,
        evidence: Evidence,
    ) -> Path | None:
        """The runtime's library folder, sealed; it lies beside the runtime's own file."""
        if owner is None or owner.spec.anchor is None or owner.spec.anchor.lib is None:
            return None
        runtime = owner if owner is not chain.head else next(iter(chain.elements[1:]), owner)
        if runtime.item is None or not owner.spec.anchor.enabled:
            return None
        source = runtime.item.source
        folder = Path(source.path.parent, owner.spec.anchor.lib)
        if not folder.is_dir():
            evidence.absent(str(folder))
            return None
        with trace.failing("seal", item_id=runtime.item_id):
            if not folder.resolve().is_relative_to(source.kind_folder.resolve()):
                raise AnchorError(
                    f"The library folder {folder} of {source.path} leaves {source.kind_folder}.",
                    next_step="Let anchor.lib name a folder beside the runtime's file.",
                )
            files = self._verify_tree(
                folder, evolve(deps, enabled=True, scope="anchor"), runtime.item, evidence
            )
            if any(not item.is_verified for item in files.values()):
                return folder
            sealed: SealedTree = self._seals.seal(
                {name: item.content for name, item in files.items()}
            )
        evidence.tree(sealed.stat)
        return sealed.root

    def _verify_tree(
        self, root: Path, deps: VerifyDepsSpec, owner: VerifiedItem, evidence: Evidence
    ) -> dict[str, VerifiedItem]:
        """Verify every file that the tool can import, by slash path below the anchor."""
        if not deps.enabled or deps.scope == "tool_file":
            return {}
        top, recursive = root, deps.recursive
        if deps.scope in ("tool_dir", "tool_siblings"):
            top = owner.source.path.parent
            recursive = recursive and deps.scope == "tool_dir"
        sources, seen = TreeFilter(deps.extensions, deps.exclude_dirs, recursive), Evidence()
        # The stat comes first: what changes while the files are read is noticed the next time.
        every = TreeFilter((*deps.extensions, SIDECAR), deps.exclude_dirs, recursive)
        evidence.tree(TreeStat(str(top), every, stat_tree(str(top), every)))
        found = {
            path.relative_to(root).as_posix(): self._verify_file(path, root, owner, seen)
            for path in self._importable(top, sources)
        }
        evidence.add(seen, but_files_below=str(top))
        return found

    def _importable(self, top: Path, sources: TreeFilter) -> Iterator[Path]:
        """Files of the runtime's extensions, and others that a sidecar vouches for."""
        for name, _ in list_tree(str(top), sources):
            yield top / name
        sidecars = TreeFilter((SIDECAR,), sources.exclude_dirs, sources.recursive)
        for name, _ in list_tree(str(top), sidecars):
            path = top / name.removesuffix(SIDECAR)
            if path.suffix not in (sources.extensions or ()) and path.is_file():
                yield path

    def _verify_file(
        self, path: Path, root: Path, owner: VerifiedItem, evidence: Evidence
    ) -> VerifiedItem:
        if path == owner.source.path:
            return owner
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            raise AnchorError(
                f"{path} is a link that leaves the anchor {root}.",
                next_step="Put the file itself there and sign it.",
            )
        relative = path.relative_to(owner.source.kind_folder).as_posix()
        ref = ItemRef("tool", relative.rpartition(".")[0])
        try:
            return self._verifier.verify(
                ItemSource(ref, path, owner.source.space, relative), evidence
            )
        except IntegrityError as error:
            error.message = (
                f"'{owner.source.ref.id}' can import a file that doesn't verify: {error.message}"
            )
            raise


def _package_folders(root: Path, deps: VerifyDepsSpec, evidence: Evidence) -> dict[str, Path]:
    """The package folders in the anchor that its verification leaves out."""
    found: dict[str, Path] = {}
    for name in PACKAGE_FOLDERS:
        if name not in deps.exclude_dirs:
            continue
        if (root / name).is_dir():
            found[name] = root / name
        else:
            evidence.absent(str(root / name))
    return found
