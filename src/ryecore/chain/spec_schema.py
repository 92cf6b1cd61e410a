"""The form of what a chain element may declare, as a JSON Schema."""

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["SPEC_SCHEMA"]

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_TEXT_OR_NULL: Final = {"type": ["string", "null"]}
_SCALARS: Final = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
_VERSIONS: Final = {
    "type": "object",
    "properties": {"min_version": _TEXT, "max_version": _TEXT},
    "additionalProperties": False,
}
_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
_LINE: Final = {"type": "string", "pattern": r"^[^\x00\r\n]+$"}
_WARM: Final = {
    "type": ["object", "boolean"],
    "not": {"const": True},
    "properties": {
        # A name in the element's own folder.
        "template": {"type": "string", "pattern": r"^(?!\.\.?$)[^/\\\x00]+$"},
        "fork_point": _LINE,
        "preload": {"type": "array", "items": _LINE},
        "leading_imports": {"type": "boolean"},
    },
    "required": ["template", "fork_point"],
    "additionalProperties": False,
}
_CONFIG_SPEC: Final = {
    "type": "object",
    "properties": {
        # Relative, and without a segment that leads upwards.
        "path": {"type": "string", "pattern": r"^(?!.*(^|/)\.\.?(/|$))[^/\\\x00][^\\\x00]*$"},
        "mode": {"enum": ["deep_merge", "first_match"]},
        "signed": {"type": "boolean"},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def _required_with(types: Sequence[str], key: str) -> Mapping[str, object]:
    """That an interpreter of these types declares a key."""
    return {
        "if": {"properties": {"type": {"enum": types}}, "required": ["type"]},
        "then": {"required": [key]},
    }


SPEC_SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {
        "executor_id": _TEXT_OR_NULL,
        "version": _TEXT,
        "tool_type": _TEXT_OR_NULL,
        "category": _TEXT,
        "description": _TEXT,
        "env_config": {
            "type": "object",
            "properties": {
                "interpreter": {
                    "type": "object",
                    "properties": {
                        "type": {"enum": ["local_binary", "system_binary", "command", "own"]},
                        "var": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
                        "binary": _TEXT,
                        "candidates": _TEXTS,
                        "search_paths": _TEXTS,
                        "search_roots": _TEXTS,
                        "resolve_cmd": {**_TEXTS, "minItems": 1},
                        "fallback": _TEXT,
                        "system_tools": {"const": "own"},
                        "modules": {"type": "object", "additionalProperties": _TEXT},
                    },
                    "required": ["type", "var"],
                    "additionalProperties": False,
                    "allOf": [
                        _required_with(["command"], "resolve_cmd"),
                        _required_with(["local_binary", "system_binary"], "binary"),
                    ],
                },
                "env": _SCALARS,
            },
            "additionalProperties": False,
        },
        "config": {"type": "object"},
        "config_schema": {"type": ["object", "null"]},
        "config_resolve": {
            "anyOf": [_CONFIG_SPEC, {"type": "array", "items": _CONFIG_SPEC}],
        },
        "anchor": {
            "type": "object",
            "properties": {
                "enabled": {"type": "boolean"},
                "mode": {"enum": ["auto", "always", "never", "disabled"]},
                "markers_any": _TEXTS,
                "root": {"enum": ["tool_dir", "tool_parent", "project_path"]},
                "lib": _TEXT,
                "cwd": _TEXT,
                "env_paths": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {"prepend": _TEXTS, "append": _TEXTS},
                        "additionalProperties": False,
                    },
                },
                "default_files": {
                    "type": "object",
                    "propertyNames": {"pattern": r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"},
                    "additionalProperties": {"type": "string", "maxLength": 4096},
                },
            },
            "additionalProperties": False,
        },
        "verify_deps": {
            "type": "object",
            "properties": {
                "enabled": {"type": "boolean"},
                "scope": {"enum": ["anchor", "tool_dir", "tool_siblings", "tool_file"]},
                "recursive": {"type": "boolean"},
                "extensions": _TEXTS,
                "exclude_dirs": _TEXTS,
                "files": _TEXTS,
            },
            "additionalProperties": False,
        },
        "inputs": {"anyOf": [_TEXTS, {"type": "object"}]},
        "outputs": {"anyOf": [_TEXTS, {"type": "object"}]},
        "child_constraints": {
            "anyOf": [_VERSIONS, {"type": "object", "additionalProperties": _VERSIONS}],
        },
        "file_types": {
            "type": "object",
            "propertyNames": {"pattern": r"^\.[A-Za-z0-9_]+$"},
            "additionalProperties": {"enum": ["#", "//", "<!--", "--", ";"]},
        },
        "item_paths": {
            "type": "object",
            "propertyNames": {"pattern": _NAME},
            "additionalProperties": {"type": "string", "pattern": _NAME},
        },
        "pinned_by": {
            "type": "object",
            "properties": {"config_key": _TEXT, "next_step": _TEXT},
            "required": ["config_key", "next_step"],
            "additionalProperties": False,
        },
        "own_process": {"type": "boolean"},
        "warm": _WARM,
    },
}
