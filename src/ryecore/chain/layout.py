"""The sealed snapshots in which a chain's verified bytes run, and the anchors that they hold.

Source: docs/design/chain.md#anchors; decisions 16 and 22.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import evolve

from ryecore.chain.arguments import FORK_POINT
from ryecore.chain.dependencies import Dependencies
from ryecore.chain.elements import ChainElement
from ryecore.chain.model import Chain, Deps, WarmTemplate
from ryecore.chain.plan import merge_configs, placeholder_names
from ryecore.chain.spec import AnchorSpec, VerifyDepsSpec, WarmSpec
from ryecore.chain.templating import ConfigTemplate, as_text, count_of
from ryecore.chain.trace import Trace
from ryecore.errors import AnchorError, ConfigError, MetadataError
from ryecore.frozen import frozen
from ryecore.items.snapshots import NOWHERE, Snapshot, SnapshotStore
from ryecore.items.spaces import ItemSource
from ryecore.items.verification import VerifiedItem, Verifier
from ryecore.lillux.digests import read_digest
from ryecore.lillux.witness import Evidence, Witness

__all__ = ["SealedLayout", "Sealer", "anchor_hint", "find_anchor", "template_of"]


@frozen
class SealedLayout:
    """Where a chain's files stand when it runs.

    Attributes:
        nowhere: A path at which nothing stands; it lies in the snapshot, whose stat shows it.
        origins: Each sealed folder, and the author's own folder that it is a copy of.
        sealed: The sealed folders that the process may read.
        links: Where the items stand whose paths the runtime takes, by placeholder.
        warm: What makes a template of the process; None where it starts cold, as all does that
            is not verified.
    """

    tool_path: Path
    anchor_path: Path | None
    runtime_lib: Path | None
    nowhere: Path
    anchor: AnchorSpec | None
    deps: Deps
    origins: Mapping[str, str] = {}
    dependencies: tuple[ItemSource, ...] = ()
    sealed: tuple[Snapshot, ...] = ()
    links: Mapping[str, Path] = {}
    warm: WarmTemplate | None = None

    def as_authored(self, text: str) -> str:
        """Return a text with the author's own paths in place of sealed ones."""
        for sealed, authored in self.origins.items():
            text = text.replace(sealed, authored)
        return text

    @property
    def is_sealed(self) -> bool:
        """Whether what runs is a copy of verified bytes; package folders may be linked to it."""
        roots = (self.anchor_path or self.tool_path.parent, self.runtime_lib)
        return all(root is None or str(root) in self.origins for root in roots)

    def holds(self, path: str) -> bool:
        """Return whether a path leads into a sealed folder, and not out again through a link."""
        real = os.path.realpath(path)
        return any(real.startswith(os.path.realpath(root) + os.sep) for root in self.origins)

    @property
    def values(self) -> dict[str, object]:
        """What stands for these places in templates."""
        values: dict[str, object] = {
            "tool_path": str(self.tool_path),
            "tool_source": self.as_authored(str(self.tool_path)),
            "tool_dir": str(self.tool_path.parent),
            "tool_parent": str(self.tool_path.parent.parent),
            "tool_root": str(self.anchor_path or self.tool_path.parent),
            "nowhere": str(self.nowhere),
        }
        if self.anchor_path is not None:
            values["anchor_path"] = str(self.anchor_path)
        if self.runtime_lib is not None:
            values["runtime_lib"] = str(self.runtime_lib)
        return values | {name: str(path) for name, path in self.links.items()}


class Sealer:
    """Verifies what a chain's tool can import, and seals it with the tool."""

    def __init__(self, seals: SnapshotStore, verifier: Verifier) -> None:
        self._seals = seals
        self._dependencies = Dependencies(verifier)

    def lay_out(self, chain: Chain, trace: Trace, evidence: Evidence) -> SealedLayout:
        """Seal a chain's files. In dev mode an unverified tool runs from its own place."""
        tool = chain.head.item
        if tool is None:
            raise AnchorError(f"{chain.head.item_id} has no file to run.")
        owner = next((e for e in chain.elements if e.spec.anchor is not None), None)
        spec = owner.spec.anchor if owner is not None else None
        deps = next(
            (e.spec.verify_deps for e in chain.elements if e.spec.verify_deps is not None),
            VerifyDepsSpec(),
        )
        layout = SealedLayout(tool.source.path, None, None, self._seals.nowhere, spec, "none")
        layout = self._with_links(layout, chain, trace, evidence)
        layout = self._with_runtime_lib(layout, chain, owner, deps, trace, evidence)
        with trace.failing("seal", item_id=chain.head.item_id):
            root = (
                find_anchor(spec, tool.source.path, tool.source.kind_folder, evidence)
                if spec is not None
                else None
            )
            if root is None:
                layout = self._single_file(layout, tool, _default_files(spec), trace, evidence)
            else:
                named = _named_files(chain, deps)
                layout = self._anchored(layout, tool, root, deps, named, trace, evidence)
        return self._with_warm(layout, chain, trace, evidence)

    def _with_links(
        self, layout: SealedLayout, chain: Chain, trace: Trace, evidence: Evidence
    ) -> SealedLayout:
        """With the items whose paths the runtime takes, each sealed by itself."""
        links: dict[str, Path] = {}
        origins: dict[str, str] = {}
        trees: list[Snapshot] = []
        for link in chain.links:
            item = link.element.item
            if item is None or not item.is_verified:
                links[link.placeholder] = link.element.path or self._seals.nowhere
                continue
            name = item.source.path.name
            with trace.failing("seal", item_id=link.element.item_id):
                sealed = self._seals.seal({name: item.content})
            evidence.tree(sealed.stat)
            trees.append(sealed)
            links[link.placeholder] = sealed.root / name
            origins[str(sealed.root)] = str(item.source.path.parent)
        return evolve(layout, links=links, origins=origins, sealed=(*layout.sealed, *trees))

    def _single_file(
        self,
        layout: SealedLayout,
        tool: VerifiedItem,
        defaults: Mapping[str, bytes],
        trace: Trace,
        evidence: Evidence,
    ) -> SealedLayout:
        if not tool.is_verified:
            return layout
        name = tool.source.path.name
        sealed = self._seals.seal({**defaults, name: tool.content})
        evidence.tree(sealed.stat)
        trace.add("seal", anchor=None, files=1, digest=sealed.digest, deps="none")
        origins = {**layout.origins, str(sealed.root): str(tool.source.path.parent)}
        return evolve(
            layout,
            tool_path=sealed.root / name,
            nowhere=sealed.root / NOWHERE,
            origins=origins,
            sealed=(*layout.sealed, sealed),
        )

    def _anchored(
        self,
        layout: SealedLayout,
        tool: VerifiedItem,
        root: Path,
        deps: VerifyDepsSpec,
        named: Sequence[str],
        trace: Trace,
        evidence: Evidence,
    ) -> SealedLayout:
        inside = tool.source.path.relative_to(root).as_posix()
        files = self._dependencies.verify_tree(root, deps, tool, evidence)
        files |= self._dependencies.verify_named(root, named, tool, evidence)
        if not tool.is_verified or any(not item.is_verified for item in files.values()):
            trace.add("seal", anchor=str(root), files=len(files), deps="unverified")
            return evolve(layout, anchor_path=root, deps="unverified")
        links, are_locked = self._dependencies.package_folders(root, deps, tool, evidence)
        state: Deps = "verified" if are_locked else "unverified"
        contents = {name: item.content for name, item in files.items()}
        defaults = _default_files(layout.anchor)
        sealed = self._seals.seal({**defaults, **contents, inside: tool.content}, links)
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
            sealed=(*layout.sealed, sealed),
            dependencies=(*layout.dependencies, *(item.source for item in files.values())),
        )

    def _with_runtime_lib(
        self,
        layout: SealedLayout,
        chain: Chain,
        owner: ChainElement | None,
        deps: VerifyDepsSpec,
        trace: Trace,
        evidence: Evidence,
    ) -> SealedLayout:
        """With the runtime's library folder, sealed; it lies beside the runtime's own file."""
        if owner is None or owner.spec.anchor is None or owner.spec.anchor.lib is None:
            return layout
        runtime = owner if owner is not chain.head else next(iter(chain.elements[1:]), owner)
        if runtime.item is None or not owner.spec.anchor.enabled:
            return layout
        source = runtime.item.source
        folder = Path(os.path.normpath(source.path.parent / owner.spec.anchor.lib))
        if not folder.is_dir():
            evidence.absent(str(folder))
            return layout
        with trace.failing("seal", item_id=runtime.item_id):
            if not folder.resolve().is_relative_to(source.kind_folder.resolve()):
                raise AnchorError(
                    f"The library folder {folder} of {source.path} leaves {source.kind_folder}.",
                    next_step="Let anchor.lib name a folder beside the runtime's file.",
                )
            files = self._dependencies.verify_tree(
                folder, evolve(deps, enabled=True, scope="anchor"), runtime.item, evidence
            )
            if any(not item.is_verified for item in files.values()):
                return evolve(layout, runtime_lib=folder)
            sealed: Snapshot = self._seals.seal(
                {name: item.content for name, item in files.items()}
            )
        evidence.tree(sealed.stat)
        return evolve(
            layout,
            runtime_lib=sealed.root,
            origins={**layout.origins, str(sealed.root): str(folder)},
            sealed=(*layout.sealed, sealed),
            dependencies=tuple(item.source for item in files.values()),
        )

    def _with_warm(
        self, layout: SealedLayout, chain: Chain, trace: Trace, evidence: Evidence
    ) -> SealedLayout:
        """With what makes a template of the process; it lies beside the runtime's own file."""
        with trace.failing("read_metadata", item_id=chain.head.item_id):
            found = warm_of(chain)
        if found is None:
            return layout
        owner, spec = found
        with trace.failing("verify_integrity", item_id=owner.source.ref.id, verified=False):
            program = self._dependencies.verify_beside(spec.template, owner, evidence)
        if program is None:
            trace.add("warm", item_id=owner.source.ref.id, missing=spec.template)
            return layout
        layout = evolve(layout, dependencies=(*layout.dependencies, program.source))
        if not (program.is_verified and chain.is_verified and layout.is_sealed):
            return layout
        template = template_of(spec, program.content, layout.tool_path, layout.sealed)
        return evolve(layout, warm=template)


def _default_files(spec: AnchorSpec | None) -> dict[str, bytes]:
    """Return the default files of a sealed copy that the tool doesn't have itself."""
    return (
        {} if spec is None else {name: text.encode() for name, text in spec.default_files.items()}
    )


def _named_files(chain: Chain, deps: VerifyDepsSpec) -> list[str]:
    """Return the files that `verify_deps.files` names, by only the chain's own configuration."""
    config, bound = merge_configs(chain.elements)
    names: list[str] = []
    for text in deps.files:
        template = ConfigTemplate({}, bound, config)
        names.append(template.text(text))
        if template.unknown:
            missing = ", ".join(sorted(template.unknown))
            raise ConfigError(
                f"{chain.head.path} doesn't say which file it runs: its config has no {missing}.",
                next_step=f"Write it into the tool's config, as in {missing}: NAME, and sign it.",
            )
    return names


def warm_of(chain: Chain) -> tuple[VerifiedItem, WarmSpec] | None:
    """Return the first item that says how a chain's process starts warm, and what it says.

    None where nobody does, or that one says no. A MetadataError means that something rules it out,
    or that there is no place to fork at.
    """
    index = next((i for i, one in enumerate(chain.elements) if one.spec.warm is not None), None)
    if index is None:
        return None
    item, warm = chain.elements[index].item, chain.elements[index].spec.warm
    if item is None or not warm:
        return None
    problems: list[str] = []
    if chain.is_own_process:
        problems.append("its process is ryecore's own (own_process)")
    if merge_configs(chain.elements)[0].get("keep_warm"):
        problems.append("its process is kept for later calls (config.keep_warm)")
    if FORK_POINT in placeholder_names(chain.elements):
        problems.append("a config_schema declares fork_point, which is reserved")
    # An element before it may bring arguments of its own, which then start cold.
    args = merge_configs(chain.elements[index:])[0].get("args")
    texts = args if isinstance(args, list) else []
    count = sum(count_of(FORK_POINT, as_text(text)) for text in texts)
    if count != 1:
        problems.append(f"{{fork_point}} stands {count} times in config.args, instead of once")
    if problems:
        path = item.source.path
        raise MetadataError(
            f"{path} declares warm, and '{chain.head.item_id}' can't start so: "
            f"{'; '.join(problems)}.",
            next_step="Take out warm or what rules it out, and sign it again.",
            path=path,
            problems=tuple(problems),
        )
    return item, warm


def template_of(
    spec: WarmSpec, program: bytes, tool_path: Path, sealed: Sequence[Snapshot]
) -> WarmTemplate:
    """Return what makes a template. The process may read the sealed folders before it forks."""
    told = {"preload": spec.preload, "tool": str(tool_path) if spec.leading_imports else None}
    files = [(tree.root / name, digest) for tree in sealed for name, digest in tree.digests.items()]
    witness = Witness(files, (), [tree.stat for tree in sealed])
    return WarmTemplate(spec.fork_point, program, json.dumps(told).encode(), witness)


def find_anchor(
    spec: AnchorSpec, tool_path: Path, kind_folder: Path, evidence: Evidence
) -> Path | None:
    """Find the anchor of a tool, inside its kind's folder."""
    if not spec.enabled or spec.mode == "never":
        return None
    start = tool_path.parent
    if spec.mode == "auto":
        marked = _nearest_marked(spec, start, kind_folder, evidence)
        if marked is None:
            return None
        start = marked
    if spec.root == "tool_dir":
        root = start
    else:
        root = start.parent if spec.root == "tool_parent" else kind_folder.parents[1]
    if not root.is_relative_to(kind_folder):
        raise AnchorError(
            f"The anchor of {tool_path} would be {root}, outside {kind_folder}.",
            next_step="Let the runtime's anchor root be tool_dir, or move the tool a folder down.",
        )
    return root


def _nearest_marked(
    spec: AnchorSpec, start: Path, kind_folder: Path, evidence: Evidence
) -> Path | None:
    folder = start
    while folder.is_relative_to(kind_folder):
        for marker in spec.markers_any:
            path = folder / marker
            if path.exists():
                _tell_of(path, evidence)
                return folder
            evidence.absent(str(path))
        folder = folder.parent
    return None


def _tell_of(marker: Path, evidence: Evidence) -> None:
    """Once the marker goes, so does the anchor."""
    try:
        evidence.file(str(marker), read_digest(marker)[1])
    except OSError:  # a folder, say
        evidence.never_remember()


_MISSING: Final = (
    r"No module named '(?P<python>\w+)|Cannot find module '(?P<node>[^'\n]+)'"
    r"|cannot load such file -- (?P<ruby>[\w./-]+)"
)


def anchor_hint(chain: Chain, error: str | None) -> str:
    """Explain anchors, if an error is about a missing file whose name stands beside the tool."""
    found = re.search(_MISSING, error or "")
    path = chain.head.path
    spec = next((one.spec.anchor for one in chain.elements if one.spec.anchor is not None), None)
    if found is None or path is None or spec is None or not spec.markers_any:
        return ""
    name = Path(found["python"] or found["node"] or found["ruby"]).name
    if not _stands_beside(path, name):
        return ""
    return (
        f"{name} stands beside the tool, which has no anchor: a tool runs as a sealed copy of its "
        "one file, unless a folder is marked as the root of what it may import. Mark it: put "
        f"{' or '.join(spec.markers_any)} into {path.parent}, then sign every file there."
    )


def _stands_beside(tool: Path, name: str) -> bool:
    """Return whether another file of the name stands beside a tool, which may have it itself."""
    try:
        beside = (one.name for one in tool.parent.iterdir() if one.name != tool.name)
        return any(one == name or one.split(".")[0] == name for one in beside)
    except OSError:
        return False
