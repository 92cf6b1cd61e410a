"""What a chain element declares, as types: checked by one schema, then read.

A declaration that doesn't fit is one error that lists everything that is wrong with it.
docs/reference/tool-metadata.md describes the keys.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from attrs import field

from ryecore.chain.templating import as_text
from ryecore.convert.lines import Place
from ryecore.errors import MetadataError
from ryecore.frozen import frozen
from ryecore.lillux.schema import SchemaFailure, SchemaValidator
from ryecore.policy.permissions import ASK_KINDS
from ryecore.strict_json import find_non_json

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

T = TypeVar("T")

InterpreterType = Literal["local_binary", "system_binary", "command", "own"]
AnchorMode = Literal["auto", "always", "never"]
MergeMode = Literal["deep_merge", "first_match"]
DepsScope = Literal["anchor", "tool_dir", "tool_siblings", "tool_file"]


def _strings(values: Iterable[str]) -> tuple[str, ...]:
    # attrs reads a converter's signature, which for `tuple` itself takes it milliseconds.
    return tuple(values)


@frozen
class InterpreterSpec:
    """How an interpreter is found, and the variable that names it."""

    type: InterpreterType
    var: str
    names: tuple[str, ...] = field(default=(), converter=_strings)
    search_paths: tuple[str, ...] = field(default=(), converter=_strings)
    search_roots: tuple[str, ...] = field(default=(), converter=_strings)
    resolve_cmd: tuple[str, ...] = field(default=(), converter=_strings)
    fallback: str | None = None
    system_tools: Literal["own"] | None = None
    modules: Mapping[str, str] = {}


@frozen
class EnvSpec:
    """What an element adds to the environment."""

    interpreter: InterpreterSpec | None = None
    env: Mapping[str, str] = {}


def _anchor_mode(declared: AnchorMode | Literal["disabled"]) -> AnchorMode:
    return "never" if declared == "disabled" else declared


def _env_paths(
    declared: Mapping[str, Mapping[str, Sequence[str]]],
) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    return {
        name: (tuple(change.get("prepend", ())), tuple(change.get("append", ())))
        for name, change in declared.items()
    }


@frozen
class AnchorSpec:
    """How the root of a tool's dependency tree is found, and what its processes get then."""

    enabled: bool = False
    mode: AnchorMode = field(default="auto", converter=_anchor_mode)
    markers_any: tuple[str, ...] = field(default=(), converter=_strings)
    root: Literal["tool_dir", "tool_parent", "project_path"] = "tool_dir"
    lib: str | None = None
    cwd: str | None = None
    env_paths: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(
        factory=dict, converter=_env_paths
    )
    default_files: Mapping[str, str] = {}


@frozen
class VerifyDepsSpec:
    """Which files beside a tool are verified, and so can be imported."""

    enabled: bool = False
    scope: DepsScope = "anchor"
    recursive: bool = True
    extensions: tuple[str, ...] = field(default=(), converter=_strings)
    exclude_dirs: tuple[str, ...] = field(
        default=("__pycache__", ".venv", "node_modules", ".git"), converter=_strings
    )
    files: tuple[str, ...] = field(default=(), converter=_strings)


@frozen
class ConfigSpec:
    """A file below `.ai/config/` that a tool asks for; `signed` refuses unsigned layers of it."""

    path: str
    mode: MergeMode = "deep_merge"
    signed: bool = False


@frozen
class PinSpec:
    """How a runtime's tools are pinned, by a config key, to what somebody else runs for them.

    The next step says how a pin is made; `{name}` stands for other keys of the tool's config.
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
    """How processes of a runtime are forked from a template, not started one by one."""

    template: str
    fork_point: str
    preload: tuple[str, ...] = field(default=(), converter=_strings)
    leading_imports: bool = False


@frozen
class ElementSpec:
    """What a chain element declares of itself.

    Attributes:
        child_constraints: Accepted versions by child id; the empty id stands for every child.
        own_process: Whether its process is ryecore itself, and not a tool: it inherits the whole
            environment, receives on whose behalf it acts, and nothing before it in the chain
            changes how it is started. Only ryecore's own bundle may say so.
        parallel_safe: Whether a model's calls of it may run in parallel with others.
        output_schema: The JSON Schema of what it returns; None where it declares none.
        hints: What it says of its effects: `read_only`, `destructive`, `idempotent`, `open_world`.
        reports: Whether its process gets a channel, for its progress and log messages.
        may_ask: What it may ask its caller by that channel.
        must_ask: Which of these it can't do without.
        task_support: Whether MCP clients may call it as a task, or have to.
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
    parallel_safe: bool | None = None
    output_schema: Mapping[str, object] | None = None
    hints: Mapping[str, bool] = {}
    warm: WarmSpec | Literal[False] | None = None
    reports: bool = False
    may_ask: tuple[str, ...] = field(default=(), converter=_strings)
    must_ask: tuple[str, ...] = field(default=(), converter=_strings)
    task_support: Literal["forbidden", "optional", "required"] = "forbidden"

    @property
    def has_channel(self) -> bool:
        """Whether its process gets a channel to its caller."""
        return self.reports or bool(self.may_ask)


# The form of a declaration

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_TEXT_OR_NULL: Final = {"type": ["string", "null"]}
_FLAG: Final = {"type": "boolean"}
_NAME: Final = {"type": "string", "pattern": r"^[A-Za-z_][A-Za-z0-9_]*$"}
_LINE: Final = {"type": "string", "pattern": r"^[^\x00\r\n]+$"}


def _object(properties: Mapping[str, object], *required: str) -> dict[str, object]:
    """Return the schema of an object that has no other properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _map(values: Mapping[str, object], names: Mapping[str, object] = _TEXT) -> dict[str, object]:
    """Return the schema of a mapping from names to values."""
    return {"type": "object", "propertyNames": names, "additionalProperties": values}


def _required_with(types: Sequence[str], key: str) -> Mapping[str, object]:
    """Require a key of an interpreter of these types."""
    return {
        "if": {"properties": {"type": {"enum": types}}, "required": ["type"]},
        "then": {"required": [key]},
    }


_VERSIONS: Final = _object({"min_version": _TEXT, "max_version": _TEXT})
_INTERPRETER: Final = {
    **_object(
        {
            "type": {"enum": ["local_binary", "system_binary", "command", "own"]},
            "var": _NAME,
            "binary": _TEXT,
            "candidates": _TEXTS,
            "search_paths": _TEXTS,
            "search_roots": _TEXTS,
            "resolve_cmd": {**_TEXTS, "minItems": 1},
            "fallback": _TEXT,
            "system_tools": {"const": "own"},
            "modules": _map(_TEXT),
        },
        "type",
        "var",
    ),
    "allOf": [
        _required_with(["command"], "resolve_cmd"),
        _required_with(["local_binary", "system_binary"], "binary"),
    ],
}
_CONFIG_SPEC: Final = _object(
    {
        # Relative, and without a segment that leads upwards.
        "path": {"type": "string", "pattern": r"^(?!.*(^|/)\.\.?(/|$))[^/\\\x00][^\\\x00]*$"},
        "mode": {"enum": ["deep_merge", "first_match"]},
        "signed": _FLAG,
    },
    "path",
)
_ANCHOR: Final = _object(
    {
        "enabled": _FLAG,
        "mode": {"enum": ["auto", "always", "never", "disabled"]},
        "markers_any": _TEXTS,
        "root": {"enum": ["tool_dir", "tool_parent", "project_path"]},
        "lib": _TEXT,
        "cwd": _TEXT,
        "env_paths": _map(_object({"prepend": _TEXTS, "append": _TEXTS})),
        "default_files": _map(
            {"type": "string", "maxLength": 4096}, {"pattern": r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"}
        ),
    }
)
_VERIFY_DEPS: Final = _object(
    {
        "enabled": _FLAG,
        "scope": {"enum": ["anchor", "tool_dir", "tool_siblings", "tool_file"]},
        "recursive": _FLAG,
        "extensions": _TEXTS,
        "exclude_dirs": _TEXTS,
        "files": _TEXTS,
    }
)
_WARM: Final = {
    **_object(
        {
            # A name in the element's own folder.
            "template": {"type": "string", "pattern": r"^(?!\.\.?$)[^/\\\x00]+$"},
            "fork_point": _LINE,
            "preload": {"type": "array", "items": _LINE},
            "leading_imports": _FLAG,
        },
        "template",
        "fork_point",
    ),
    "type": ["object", "boolean"],
    "not": {"const": True},
}
_AS_DECLARED: Final = (
    "executor_id", "version", "tool_type", "category", "description", "config", "config_schema",
    "file_types", "item_paths", "own_process", "parallel_safe", "output_schema", "hints",
    "reports", "may_ask", "must_ask", "task_support",
)  # fmt: skip
"""The keys that stand in `ElementSpec` as they are declared."""

_NAMES: Final = {"anyOf": [_TEXTS, _map({})]}
SPEC_SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {
        "executor_id": _TEXT_OR_NULL,
        "version": _TEXT,
        "tool_type": _TEXT_OR_NULL,
        "category": _TEXT,
        "description": _TEXT,
        "env_config": _object(
            {"interpreter": _INTERPRETER, "env": _map({"type": ["string", "number", "boolean"]})}
        ),
        "config": {"type": "object"},
        "config_schema": {"type": ["object", "null"]},
        "config_resolve": {"anyOf": [_CONFIG_SPEC, {"type": "array", "items": _CONFIG_SPEC}]},
        "anchor": _ANCHOR,
        "verify_deps": _VERIFY_DEPS,
        "inputs": _NAMES,
        "outputs": _NAMES,
        "child_constraints": {"anyOf": [_VERSIONS, _map(_VERSIONS)]},
        "file_types": _map(
            {"enum": ["#", "//", "<!--", "--", ";"]}, {"pattern": r"^\.[A-Za-z0-9_]+$"}
        ),
        "item_paths": _map(_NAME, _NAME),
        "pinned_by": _object({"config_key": _TEXT, "next_step": _TEXT}, "config_key", "next_step"),
        "own_process": _FLAG,
        "parallel_safe": _FLAG,
        "output_schema": {"type": ["object", "null"]},
        "hints": _object(
            {"read_only": _FLAG, "destructive": _FLAG, "idempotent": _FLAG, "open_world": _FLAG}
        ),
        "reports": _FLAG,
        "may_ask": {"type": "array", "items": {"enum": ASK_KINDS}},
        "must_ask": {"type": "array", "items": {"enum": ASK_KINDS}},
        "task_support": {"enum": ["forbidden", "optional", "required"]},
        "warm": _WARM,
    },
}


@cache
def _validator() -> SchemaValidator:
    return SchemaValidator(json.dumps(SPEC_SCHEMA))


def _name_maps(schema: Mapping[str, Any], place: Place = ()) -> Iterator[Place]:
    """Yield the places of the mappings whose keys are names."""
    if "propertyNames" in schema:
        yield place
    for one in schema.get("anyOf", ()):
        yield from _name_maps(one, place)
    for name, one in schema.get("properties", {}).items():
        yield from _name_maps(one, (*place, name))


_NAME_MAPS: Final = tuple(_name_maps(SPEC_SCHEMA))


def read_spec(metadata: Mapping[str, Any], path: Path, content: bytes | None = None) -> ElementSpec:
    """Read what an element declares; a MetadataError lists all problems, with the content's lines.

    The schema is checked by the extension, and not by cattrs, which takes 16 ms to load: a process
    that runs one tool would pay that for 50 microseconds of work.
    """
    try:
        failures = _validator().failures(json.dumps(metadata))
    except (TypeError, ValueError) as problem:
        found = list(find_non_json(metadata)) or [((), f"isn't JSON: {problem}")]
        raise _misdeclared(path, metadata, content, found) from None
    found = [one for failure in failures for one in _problems(failure, metadata)]
    found += _wrong_keys(metadata)
    if found:
        raise _misdeclared(path, metadata, content, found)
    declared: dict[str, Any] = {
        name: metadata[name] for name in _AS_DECLARED if metadata.get(name) is not None
    }
    resolve: Any = metadata.get("config_resolve")
    many = isinstance(resolve, list)
    return ElementSpec(
        **declared,
        has_executor="executor_id" in metadata,
        env=_env(metadata.get("env_config", {})),
        config_resolve=tuple(
            ConfigSpec(**one) for one in (resolve if many else [resolve] if resolve else [])
        ),
        resolves_many=many,
        anchor=_made(AnchorSpec, metadata.get("anchor")),
        verify_deps=_made(VerifyDepsSpec, metadata.get("verify_deps")),
        inputs=frozenset(metadata.get("inputs", ())),
        outputs=frozenset(metadata.get("outputs", ())),
        child_constraints=_constraints(metadata.get("child_constraints", {})),
        pinned_by=_made(PinSpec, metadata.get("pinned_by")),
        warm=False if metadata.get("warm") is False else _made(WarmSpec, metadata.get("warm")),
    )


def _made(spec: type[T], declared: Mapping[str, Any] | None) -> T | None:
    return None if declared is None else spec(**declared)


def _env(declared: Mapping[str, Any]) -> EnvSpec:
    interpreter = None
    if (found := declared.get("interpreter")) is not None:
        found = {**found, "names": found.get("candidates", ())}
        if "binary" in found:
            found["names"] = (found["binary"], *found["names"])
        interpreter = InterpreterSpec(
            **{name: value for name, value in found.items() if name not in ("binary", "candidates")}
        )
    env = {name: as_text(value) for name, value in declared.get("env", {}).items()}
    return EnvSpec(interpreter, env)


def _constraints(declared: Mapping[str, Any]) -> dict[str, VersionRange]:
    """Read both forms: flat for every child, or a map by child id."""
    if not declared:
        return {}
    if any(isinstance(value, str) for value in declared.values()):
        return {"": VersionRange(**declared)}
    return {child: VersionRange(**limits) for child, limits in declared.items()}


def _problems(failure: SchemaFailure, metadata: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Yield the place and the text of a failure; each unknown key with a guess."""
    from ryecore.convert.config import did_you_mean  # noqa: PLC0415 - only where there is a problem
    from ryecore.convert.strict import written_key  # noqa: PLC0415

    place: Place = tuple(failure.path.split(".")) if failure.path else ()
    known: Any = SPEC_SCHEMA
    value: Any = metadata
    for part in place:
        known = known.get("properties", {}).get(part, {}) if isinstance(known, Mapping) else {}
        value = value.get(part) if isinstance(value, Mapping) else None
    names = known.get("properties", {}) if known.get("additionalProperties") is False else {}
    found = map(written_key, value) if names and isinstance(value, Mapping) else ()
    unknown = sorted(set(found) - set(names))
    if not unknown or "dditional" not in failure.message:
        yield place, f"is wrong: {failure.message}"
    for name in unknown:
        yield (*place, name), f"is unknown.{did_you_mean(name, names)}"


def _wrong_keys(metadata: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Yield the keys that aren't text where names are expected; in JSON every key is text."""
    for place in _NAME_MAPS:
        names: Any = metadata
        for part in place:
            names = names.get(part) if isinstance(names, dict) else None
        for key in names if isinstance(names, dict) else ():
            if not isinstance(key, str):
                from ryecore.convert.strict import written_key  # noqa: PLC0415 - only then

                yield (*place, written_key(key)), f"must be text, not {written_key(key)}"


def _misdeclared(
    path: Path,
    metadata: Mapping[str, Any],
    content: bytes | None,
    found: Sequence[tuple[Place, str]],
) -> MetadataError:
    from ryecore.convert.config import ConfigFile, Configuration  # noqa: PLC0415

    text = content if path.suffix in (".yaml", ".yml") else None
    file = ConfigFile(str(path), metadata, text)
    problems = Configuration(metadata, (file,)).locate(found)
    listed = "; ".join(one.in_file().rstrip(".") for one in problems)
    return MetadataError(
        f"{path} declares what can't be read: {listed}.",
        next_step="Correct it and sign it again.",
        path=path,
        line=problems[0].line,
        problems=problems,
    )
