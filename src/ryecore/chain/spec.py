"""What a chain element declares, as types: checked by one schema, then read.

A declaration that doesn't fit is one error that lists everything that is wrong with it.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from attrs import frozen

from ryecore.chain.spec_schema import SPEC_SCHEMA
from ryecore.errors import MetadataError
from ryecore.lillux.schema import SchemaValidator

__all__ = [
    "AnchorSpec",
    "ConfigSpec",
    "ElementSpec",
    "EnvSpec",
    "InterpreterSpec",
    "PinSpec",
    "VerifyDepsSpec",
    "VersionRange",
    "WarmSpec",
    "read_spec",
]

InterpreterType = Literal["local_binary", "system_binary", "command", "own"]
AnchorMode = Literal["auto", "always", "never"]
MergeMode = Literal["deep_merge", "first_match"]
DepsScope = Literal["anchor", "tool_dir", "tool_siblings", "tool_file"]


@frozen
class InterpreterSpec:
    """How an interpreter is found, and the variable that names it.

    Attributes:
        type: Below the project (`local_binary`), on the PATH (`system_binary`), as the output
            of a command (`command`), or the one that ryecore itself runs on (`own`).
        var: The environment variable that gets its path.
        names: The names to look for, in order.
        search_paths: Folders below each root.
        search_roots: The roots, as templates; the project where there is none.
        resolve_cmd: The command that prints the path.
        fallback: What to take when nothing is found.
        system_tools: `own` where a system tool runs on ryecore's own interpreter.
        modules: With `own`: modules that must be there, and the extra that brings each.
    """

    type: InterpreterType
    var: str
    names: tuple[str, ...] = ()
    search_paths: tuple[str, ...] = ()
    search_roots: tuple[str, ...] = ()
    resolve_cmd: tuple[str, ...] = ()
    fallback: str | None = None
    system_tools: Literal["own"] | None = None
    modules: Mapping[str, str] = {}


@frozen
class EnvSpec:
    """What an element adds to the environment."""

    interpreter: InterpreterSpec | None = None
    env: Mapping[str, str] = {}


@frozen
class AnchorSpec:
    """How the root of a tool's dependency tree is found, and what then changes.

    Attributes:
        enabled: Whether there is one at all.
        mode: `auto` looks for a marker, `always` and `never` don't.
        markers_any: Names of files of which one marks the root.
        root: Which folder an anchor that needs no marker has.
        lib: The runtime's library folder, beside the runtime's own file.
        cwd: The child's working folder, as a template.
        env_paths: Per variable, what to put before and behind its value.
        default_files: Names and contents of files that the sealed copy gets where the tool has
            none, because programs would look for them in the folders above.
    """

    enabled: bool = False
    mode: AnchorMode = "auto"
    markers_any: tuple[str, ...] = ()
    root: Literal["tool_dir", "tool_parent", "project_path"] = "tool_dir"
    lib: str | None = None
    cwd: str | None = None
    env_paths: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    default_files: Mapping[str, str] = {}


@frozen
class VerifyDepsSpec:
    """Which files beside a tool are verified, and so can be imported.

    Attributes:
        enabled: Whether any are.
        scope: Where they stand; `tool_file` means that only `files` count.
        recursive: Whether folders are entered.
        extensions: Which files count; others enter by a signed sidecar alone.
        exclude_dirs: Names of folders that are not entered.
        files: Templates of files in the tool's folder that must be there, whatever their extension.
    """

    enabled: bool = False
    scope: DepsScope = "anchor"
    recursive: bool = True
    extensions: tuple[str, ...] = ()
    exclude_dirs: tuple[str, ...] = ("__pycache__", ".venv", "node_modules", ".git")
    files: tuple[str, ...] = ()


@frozen
class ConfigSpec:
    """A configuration file that a tool asks for.

    Attributes:
        path: The slash path below `.ai/config/`.
        mode: All layers merged, or the first one found.
        signed: Whether an unsigned layer is refused.
    """

    path: str
    mode: MergeMode = "deep_merge"
    signed: bool = False


@frozen
class PinSpec:
    """How a runtime's tools are pinned to what somebody else runs for them.

    Attributes:
        config_key: The key of the tool's config that holds the pin.
        next_step: How one is made; `{name}` stands for other keys of the tool's config.
    """

    config_key: str
    next_step: str


@frozen
class VersionRange:
    """The versions that an element accepts of the element before it."""

    min_version: str | None = None
    max_version: str | None = None


@frozen
class WarmSpec:
    """How processes of a runtime can be forked from a template, instead of started one by one.

    Attributes:
        template: The program that makes a process such a template: a file beside the element's.
        fork_point: What stands for `{fork_point}` in a template's arguments: where it forks.
        preload: What the template imports ahead.
        leading_imports: Whether it also imports what the tool begins with.
    """

    template: str
    fork_point: str
    preload: tuple[str, ...] = ()
    leading_imports: bool = False


@frozen
class ElementSpec:
    """What a chain element declares of itself.

    Attributes:
        has_executor: Whether it says who executes it; an explicit null does.
        child_constraints: Accepted versions by child id; the empty id stands for every child.
        item_paths: Placeholders for the paths of other items, and the config key that names each.
        pinned_by: How its tools are pinned; a tool without a pin is not run for a model.
        own_process: Whether its process is no tool but ryecore itself: it inherits the whole
            environment, is told on whose behalf it acts, and nothing before it in the chain
            changes how it is started. Only ryecore's own bundle may say so.
        warm: How its processes start warm, or that none does; None where it says nothing.
    """

    executor_id: str | None = None
    has_executor: bool = False
    version: str | None = None
    tool_type: str | None = None
    category: str | None = None
    description: str = ""
    env: EnvSpec = EnvSpec()
    config: Mapping[str, object] = {}
    config_schema: Mapping[str, object] | None = None
    config_resolve: tuple[ConfigSpec, ...] = ()
    resolves_many: bool = False
    anchor: AnchorSpec | None = None
    verify_deps: VerifyDepsSpec | None = None
    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    child_constraints: Mapping[str, VersionRange] = {}
    file_types: Mapping[str, str] = {}
    item_paths: Mapping[str, str] = {}
    pinned_by: PinSpec | None = None
    own_process: bool = False
    warm: WarmSpec | Literal[False] | None = None


@cache
def _validator() -> SchemaValidator:
    return SchemaValidator(json.dumps(SPEC_SCHEMA))


def read_spec(metadata: Mapping[str, Any], path: Path) -> ElementSpec:
    """Read what an element declares.

    Args:
        metadata: The keys that its source declares.
        path: The source, for the error's text.

    Returns:
        The declaration.

    Raises:
        MetadataError: A key has a value of another form; every one is listed.
    """
    try:
        failures = _validator().failures(json.dumps(metadata))
    except (TypeError, ValueError) as problem:
        raise _misdeclared(path, [str(problem)]) from None
    if failures:
        raise _misdeclared(path, [f"{failure.path}: {failure.message}" for failure in failures])
    resolve: Any = metadata.get("config_resolve")
    many = isinstance(resolve, list)
    return ElementSpec(
        executor_id=metadata.get("executor_id"),
        has_executor="executor_id" in metadata,
        version=metadata.get("version"),
        tool_type=metadata.get("tool_type"),
        category=metadata.get("category"),
        description=metadata.get("description", ""),
        env=_env(metadata.get("env_config", {})),
        config=metadata.get("config", {}),
        config_schema=metadata.get("config_schema"),
        config_resolve=tuple(
            ConfigSpec(**one) for one in (resolve if many else [resolve] if resolve else [])
        ),
        resolves_many=many,
        anchor=_anchor(metadata["anchor"]) if "anchor" in metadata else None,
        verify_deps=_verify_deps(metadata["verify_deps"]) if "verify_deps" in metadata else None,
        inputs=frozenset(metadata.get("inputs", ())),
        outputs=frozenset(metadata.get("outputs", ())),
        child_constraints=_constraints(metadata.get("child_constraints", {})),
        file_types=metadata.get("file_types", {}),
        item_paths=metadata.get("item_paths", {}),
        pinned_by=PinSpec(**metadata["pinned_by"]) if "pinned_by" in metadata else None,
        own_process=metadata.get("own_process", False),
        warm=_warm(metadata.get("warm")),
    )


def _env(declared: Mapping[str, Any]) -> EnvSpec:
    found = declared.get("interpreter")
    interpreter = None
    if found is not None:
        binary = [found["binary"]] if "binary" in found else []
        interpreter = InterpreterSpec(
            type=found["type"],
            var=found["var"],
            names=(*binary, *found.get("candidates", ())),
            search_paths=tuple(found.get("search_paths", ())),
            search_roots=tuple(found.get("search_roots", ())),
            resolve_cmd=tuple(found.get("resolve_cmd", ())),
            fallback=found.get("fallback"),
            system_tools=found.get("system_tools"),
            modules=found.get("modules", {}),
        )
    env = {name: _as_text(value) for name, value in declared.get("env", {}).items()}
    return EnvSpec(interpreter, env)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _anchor(declared: Mapping[str, Any]) -> AnchorSpec:
    mode = declared.get("mode", "auto")
    return AnchorSpec(
        enabled=declared.get("enabled", False),
        mode="never" if mode == "disabled" else mode,
        markers_any=tuple(declared.get("markers_any", ())),
        root=declared.get("root", "tool_dir"),
        lib=declared.get("lib"),
        cwd=declared.get("cwd"),
        env_paths={
            name: (tuple(change.get("prepend", ())), tuple(change.get("append", ())))
            for name, change in declared.get("env_paths", {}).items()
        },
        default_files=declared.get("default_files", {}),
    )


def _verify_deps(declared: Mapping[str, Any]) -> VerifyDepsSpec:
    default = VerifyDepsSpec()
    return VerifyDepsSpec(
        enabled=declared.get("enabled", default.enabled),
        scope=declared.get("scope", default.scope),
        recursive=declared.get("recursive", default.recursive),
        extensions=tuple(declared.get("extensions", default.extensions)),
        exclude_dirs=tuple(declared.get("exclude_dirs", default.exclude_dirs)),
        files=tuple(declared.get("files", default.files)),
    )


def _warm(declared: Mapping[str, Any] | Literal[False] | None) -> WarmSpec | Literal[False] | None:
    if not declared:
        return None if declared is None else False
    return WarmSpec(
        template=declared["template"],
        fork_point=declared["fork_point"],
        preload=tuple(declared.get("preload", ())),
        leading_imports=declared.get("leading_imports", False),
    )


def _constraints(declared: Mapping[str, Any]) -> dict[str, VersionRange]:
    """Both forms: flat for every child, or a map by child id."""
    if not declared:
        return {}
    if any(isinstance(value, str) for value in declared.values()):
        return {"": VersionRange(**declared)}
    return {child: VersionRange(**limits) for child, limits in declared.items()}


def _misdeclared(path: Path, problems: Sequence[str]) -> MetadataError:
    return MetadataError(
        f"{path} declares what can't be read: {'; '.join(problems)}.",
        next_step="Mend it and sign it again.",
        path=path,
        problems=tuple(problems),
    )
