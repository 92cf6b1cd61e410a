"""Build a chain along each executor id to the primitive, and validate its neighbours.

Signed runtimes may add file types to the fixed ones, which tools are then found by.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ryecore.chain.elements import ChainElement, Link
from ryecore.chain.model import Chain, ValidChain
from ryecore.chain.spec import ElementSpec, EnvSpec, VersionRange, read_spec
from ryecore.chain.trace import Remembered, Trace
from ryecore.convert.lines import quoted
from ryecore.errors import (
    ChainError,
    ChainTooDeep,
    CircularDependency,
    ExecutorNotFound,
    IncompatibleChain,
    ItemNotFound,
    MetadataError,
    MissingExecutorId,
    RyeError,
)
from ryecore.items.metadata import parse_metadata
from ryecore.items.refs import ItemRef, check_item_id
from ryecore.items.signature import SIDECAR, CommentForm
from ryecore.items.spaces import EXTENSIONS, ItemSource, Space, Spaces, locate
from ryecore.items.trust import TrustStore
from ryecore.items.verification import VerifiedItem, Verifier
from ryecore.lillux.digests import TreeFilter, stat_tree
from ryecore.lillux.witness import Evidence, TreeStat

if TYPE_CHECKING:
    from packaging.version import Version

__all__ = [
    "MAX_CHAIN_DEPTH",
    "PRIMITIVE_SPECS",
    "RUNTIMES_FOLDER",
    "ChainBuilder",
    "ChainValidator",
    "FileTypes",
]

MAX_CHAIN_DEPTH: Final = 10
"""How many elements a chain may have, the primitive included.

Source: docs/design/chain.md#building; decision 14.
"""

EXECUTE_ID: Final = "rye/core/primitives/execute"
PRIMITIVE_SPECS: Final[Mapping[str, ElementSpec]] = {
    EXECUTE_ID: ElementSpec(has_executor=True, tool_type="primitive"),
}

_EXECUTORS: Final[Mapping[str, str]] = {"mcp_server": "rye/core/runtimes/mcp/server"}
"""What executes a tool of a type that may leave its executor open."""


RUNTIMES_FOLDER: Final = "rye/core/runtimes"

_RUNTIMES: Final = TreeFilter(extensions=(".yaml",))


class FileTypes:
    """The file types that signed runtimes add, read when an extension is not among the fixed ones.

    They are cached until a runtime's file or a key changes. A runtime that doesn't verify adds
    nothing. Source: decision 2.
    """

    def __init__(self, spaces: Spaces, trust: TrustStore) -> None:
        self._spaces = spaces
        self._verifier = Verifier(trust)
        self._remembered = Remembered()

    def comment_forms(self) -> Mapping[str, CommentForm]:
        """Return the comment form of each added extension; the first space that names one wins."""
        return self._remembered.recall("", Trace(), self._read)

    def _read(self, _: Trace, evidence: Evidence) -> Mapping[str, CommentForm]:
        found: dict[str, CommentForm] = {}
        for space in self._spaces:
            folder = space.folder("tool")
            _see(folder / RUNTIMES_FOLDER, evidence)
            for path in sorted((folder / RUNTIMES_FOLDER).rglob("*.yaml")):
                for extension, token in self._declared(path, folder, space, evidence).items():
                    if extension not in EXTENSIONS["tool"]:
                        found.setdefault(extension, CommentForm.of(token))
        return found

    def extensions(self) -> tuple[str, ...]:
        """Return the added extensions, sorted."""
        return tuple(sorted(self.comment_forms()))

    def _declared(
        self, path: Path, folder: Path, space: Space, evidence: Evidence
    ) -> Mapping[str, str]:
        relative = path.relative_to(folder).as_posix()
        source = ItemSource(ItemRef("tool", relative.rpartition(".")[0]), path, space, relative)
        try:
            item = self._verifier.verify(source, evidence)
            return read_spec(parse_metadata(item.content, path), path).file_types
        except RyeError:
            evidence.never_remember()  # why it doesn't count may change unseen
            return {}


def _see(folder: Path, evidence: Evidence) -> None:
    """Have a file that comes or goes noticed. Seen before the files are, so that none is missed."""
    try:
        evidence.tree(TreeStat(str(folder), _RUNTIMES, stat_tree(folder, _RUNTIMES)))
    except FileNotFoundError:
        evidence.absent(str(folder))
    except OSError:
        evidence.never_remember()


class ChainBuilder:
    """Builds chains of verified elements."""

    def __init__(self, spaces: Spaces, verifier: Verifier, file_types: FileTypes) -> None:
        self._spaces = spaces
        self._verifier = verifier
        self._file_types = file_types

    def build(self, ref: ItemRef, trace: Trace, evidence: Evidence) -> Chain:
        """Build the chain of a tool."""
        elements: list[ChainElement] = []
        try:
            self._build(ref, elements, trace, evidence)
            links = self._links(elements, trace, evidence)
        except RyeError as error:
            error.during(str(ref), chain=_ids(elements))
            raise
        return Chain(tuple(elements), links)

    def _build(
        self, ref: ItemRef, elements: list[ChainElement], trace: Trace, evidence: Evidence
    ) -> None:
        allowed: tuple[Space, ...] = tuple(self._spaces)
        current = ref
        while current.id not in PRIMITIVE_SPECS:
            with trace.failing("resolve", item_id=current.id):
                _check_progress(current, elements)
            element = self._element(current, allowed, elements, trace, evidence)
            elements.append(element)
            current = ItemRef("tool", self._executor_of(element, trace))
            if element.item is not None:
                allowed = self._spaces.from_space(element.item.source.space.name)
        with trace.failing("resolve", item_id=current.id):
            _check_progress(current, elements)
            if not elements:
                raise ChainError(
                    f"{ref} is a primitive: it runs what a runtime tells it to, nothing by itself.",
                    next_step="Execute a tool whose runtime leads to it.",
                )
        trace.add("resolve", item_id=current.id, path=None, space="built-in", shadowed=[])
        elements.append(ChainElement(current.id, "built-in", None, PRIMITIVE_SPECS[current.id]))

    def _links(
        self, elements: Sequence[ChainElement], trace: Trace, evidence: Evidence
    ) -> tuple[Link, ...]:
        """Return the items whose paths a runtime takes, each named by signed config before it."""
        return tuple(
            self._link(placeholder, key, elements[:index], runtime, trace, evidence)
            for index, runtime in enumerate(elements)
            for placeholder, key in runtime.spec.item_paths.items()
        )

    def _link(
        self,
        placeholder: str,
        key: str,
        before: Sequence[ChainElement],
        runtime: ChainElement,
        trace: Trace,
        evidence: Evidence,
    ) -> Link:
        owner = next((one for one in before if key in one.spec.config), None)
        with trace.failing("resolve", item_id=runtime.item_id):
            named = owner.spec.config[key] if owner is not None else None
            if owner is None or owner.item is None or not isinstance(named, str):
                raise ChainError(
                    f"'{runtime.item_id}' needs the id of an item in the tool's config, as "
                    f"'{key}'.",
                    next_step=f"Write it there, such as {key}: acme/name, and sign the tool.",
                )
        allowed = self._spaces.from_space(owner.item.source.space.name)
        ref = ItemRef("tool", check_item_id(named))
        element = self._element(ref, allowed, (*before, runtime), trace, evidence)
        return Link(placeholder, owner.item_id, runtime.item_id, element)

    def _locate(
        self,
        ref: ItemRef,
        allowed: Sequence[Space],
        elements: Sequence[ChainElement],
        evidence: Evidence,
    ) -> ItemSource:
        try:
            others: set[str] = set()
            found = locate(ref, allowed, evidence=evidence, others=others)
            if others <= {SIDECAR}:
                return found
            more = self._file_types.extensions()
            return locate(ref, allowed, more_extensions=more, evidence=evidence)
        except ItemNotFound as error:
            more = self._file_types.extensions()
            if more:
                try:
                    return locate(ref, allowed, more_extensions=more, evidence=evidence)
                except ItemNotFound:
                    pass
            if not elements:
                raise
            raise ExecutorNotFound(
                f"Executor not found: {ref.id}, which '{elements[-1].item_id}' names.",
                next_step=(
                    error.next_step if error.similar else f"Searched {', '.join(error.searched)}."
                ),
                executor_id=ref.id,
            ) from None

    def _element(
        self,
        ref: ItemRef,
        allowed: Sequence[Space],
        elements: Sequence[ChainElement],
        trace: Trace,
        evidence: Evidence,
    ) -> ChainElement:
        with trace.failing("resolve", item_id=ref.id):
            source = self._locate(ref, allowed, elements, evidence)
        trace.add(
            "resolve",
            item_id=ref.id,
            path=str(source.path),
            space=source.space.label,
            shadowed=[{"path": str(path), "space": space.label} for path, space in source.shadowed],
        )
        return self._verified_element(source, trace, evidence)

    def _verified_element(
        self, source: ItemSource, trace: Trace, evidence: Evidence
    ) -> ChainElement:
        with trace.failing("verify_integrity", item_id=source.ref.id, verified=False):
            item: VerifiedItem = self._verifier.verify(source, evidence)
        trace.add(
            "verify_integrity",
            item_id=source.ref.id,
            verified=item.is_verified,
            key_fp=item.fingerprint,
        )
        with trace.failing("read_metadata", item_id=source.ref.id):
            spec = read_spec(parse_metadata(item.content, source.path), source.path, item.content)
            _check_category(spec, source)
        return ChainElement(source.ref.id, source.space.label, item, spec)

    def _executor_of(self, element: ChainElement, trace: Trace) -> str:
        by_type = _EXECUTORS.get(element.spec.tool_type or "")
        if element.spec.executor_id is None and by_type is not None:
            return by_type
        with trace.failing("resolve", item_id=element.item_id):
            if not element.spec.has_executor:
                raise MissingExecutorId(
                    f"{element.path} doesn't say which executor runs it.",
                    next_step="Declare one, such as __executor_id__ = "
                    '"rye/core/runtimes/python/function" (executor_id in YAML), and sign it.',
                )
            if element.spec.executor_id is None:
                raise ChainError(
                    f"{element.path} declares itself a primitive (its executor is null), and "
                    f"the only primitive is {EXECUTE_ID}, which is built in.",
                    next_step=f'Name an executor, such as "{EXECUTE_ID}" for a runtime.',
                )
            return check_item_id(element.spec.executor_id)


def _check_progress(current: ItemRef, elements: Sequence[ChainElement]) -> None:
    ids = _ids(elements)
    if current.id in ids:
        circle = " -> ".join((*ids[ids.index(current.id) :], current.id))
        raise CircularDependency(
            f"Circular dependency: {circle}.",
            next_step="Let one of them name another executor.",
        )
    if len(elements) >= MAX_CHAIN_DEPTH:
        raise ChainTooDeep(
            f"The chain of {ids[0]} is too deep: more than {MAX_CHAIN_DEPTH} elements, "
            "the primitive counted.",
            next_step="Let its runtimes lead to the primitive sooner.",
        )


def _check_category(spec: ElementSpec, source: ItemSource) -> None:
    actual = source.ref.id.rpartition("/")[0]
    if spec.category is not None and spec.category != actual:
        raise MetadataError(
            f"{source.path} declares the category '{spec.category}' and stands in '{actual}'.",
            next_step="Correct the one or move the other, then sign it again.",
            path=source.path,
        )


def _ids(elements: Sequence[ChainElement]) -> tuple[str, ...]:
    return tuple(element.item_id for element in elements)


_NAMES = {3: "project", 2: "user", 1: "system"}


class ChainValidator:
    """Checks every adjacent pair (child, parent) of a chain.

    Source: docs/design/chain.md#validation; decisions 14, 15 and 18.
    """

    def validate_chain(self, chain: Chain) -> ValidChain:
        """Check a chain. An IncompatibleChain lists every pair that doesn't fit."""
        problems: list[str] = []
        warnings: list[str] = []
        pairs = list(zip(chain.elements, chain.elements[1:], strict=False))
        for child, parent in pairs:
            problems += _space_problems(child, parent)
            problems += _io_problems(child, parent)
            _check_version(child, parent, problems, warnings)
        by_id = {element.item_id: element for element in chain.elements}
        for link in chain.links:
            problems += _space_problems(by_id[link.named_by], link.element)
        problems += _own_process_problems(chain.elements)
        problems += _channel_problems(chain.elements)
        if problems:
            raise IncompatibleChain(
                f"Chain validation failed: {'; '.join(problems)}.",
                next_step=f"Look at the chain with: rye trace tool:{chain.head.item_id}",
                problems=tuple(problems),
            )
        return ValidChain(
            chain.elements,
            chain.links,
            validated_pairs=tuple((child.item_id, parent.item_id) for child, parent in pairs),
            warnings=tuple(warnings),
        )


def _space_problems(child: ChainElement, parent: ChainElement) -> list[str]:
    if child.precedence >= parent.precedence:
        return []
    low, high = _NAMES[child.precedence], _NAMES[parent.precedence]
    if child.precedence == 1:
        return [
            f"system tool '{child.item_id}' cannot delegate to mutable {high} "
            f"tool '{parent.item_id}'"
        ]
    return [
        f"'{child.item_id}' from {low} space cannot depend on '{parent.item_id}' from {high} "
        "space, which another project doesn't have"
    ]


_ASKS_WHEN_KEPT: Final = frozenset({"mcp", "mcp_server"})
"""The types of tools whose kept process passes on what their server reports and asks."""


def _channel_problems(elements: Sequence[ChainElement]) -> list[str]:
    """The channel of a tool that reports or asks is one call's, and so must its process be."""
    keys = (one.spec.config["keep_warm"] for one in elements if "keep_warm" in one.spec.config)
    spec = elements[0].spec
    if not spec.has_channel or spec.tool_type in _ASKS_WHEN_KEPT or not next(keys, ""):
        return []
    return [
        f"'{elements[0].item_id}' declares reports or may_ask, and its process is kept for later "
        "calls (config.keep_warm)"
    ]


def _own_process_problems(elements: Sequence[ChainElement]) -> list[str]:
    """Whatever could steer a process that holds the host's keys is refused, not passed over.

    Source: decision 20. ryecore's own process is not a tool.
    """
    problems: list[str] = []
    for index, element in enumerate(elements):
        if not element.spec.own_process:
            continue
        if element.item is None or not element.item.source.space.is_built_in:
            problems.append(
                f"'{element.item_id}' declares own_process, which only ryecore's own bundle may"
            )
        if index != 1:
            problems.append(f"'{element.item_id}' executes one tool directly, and here it does not")
        for one in elements[:index]:
            steering = {
                "env_config": one.spec.env != EnvSpec(),
                "anchor": one.spec.anchor is not None,
                "verify_deps": one.spec.verify_deps is not None,
                "warm": one.spec.warm is not None,
                "reports": one.spec.reports,
                "may_ask": bool(one.spec.may_ask),
            }
            problems += [
                f"'{one.item_id}' declares {name}, which '{element.item_id}' does not take"
                for name, is_declared in steering.items()
                if is_declared
            ]
    return problems


def _io_problems(child: ChainElement, parent: ChainElement) -> list[str]:
    if not parent.spec.inputs or not child.spec.outputs:
        return []
    missing = sorted(parent.spec.inputs - child.spec.outputs)
    if not missing:
        return []
    return [
        f"'{parent.item_id}' requires inputs {missing} that '{child.item_id}' does not provide "
        f"(outputs: {sorted(child.spec.outputs)})"
    ]


def _check_version(
    child: ChainElement, parent: ChainElement, problems: list[str], warnings: list[str]
) -> None:
    constraints: Sequence[VersionRange] = [
        parent.spec.child_constraints[key]
        for key in ("", child.item_id)
        if key in parent.spec.child_constraints
    ]
    if not constraints:
        return
    version = _parse(child.spec.version)
    if version is None:
        declared = child.spec.version
        warnings.append(
            f"'{parent.item_id}' constrains the version of '{child.item_id}', which declares "
            + ("none" if declared is None else f"{quoted(declared)}, not a version")
        )
        return
    for limits in constraints:
        for bound in (limits.min_version, limits.max_version):
            if bound is not None and _parse(bound) is None:
                problems.append(f"'{parent.item_id}' declares {quoted(bound)}, not a version")
        least, most = _parse(limits.min_version), _parse(limits.max_version)
        found = f"'{child.item_id}' version {version} is"
        if least is not None and version < least:
            problems.append(f"{found} below {least}, the least '{parent.item_id}' accepts")
        if most is not None and version > most:
            problems.append(f"{found} above {most}, the most '{parent.item_id}' accepts")


def _parse(text: str | None) -> "Version | None":
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - only for constraints

    try:
        return None if text is None else Version(text)
    except InvalidVersion:
        return None
