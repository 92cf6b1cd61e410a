"""The tools that the server offers. Pure.

Source: docs/design/execute.md#parameters.
"""

from collections.abc import Mapping
from typing import Any, Final

from ryecore.policy.limits import LIMIT_NAMES

__all__ = ["DESCRIPTIONS", "INPUT_SCHEMAS", "INSTRUCTIONS", "INSTRUCTIONS_WITHOUT_VERBS"]

_PROJECT: Final = {"type": "string", "description": "Absolute path to the project root."}

INPUT_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "rye_execute": {
        "type": "object",
        "properties": {
            "item_id": {
                "type": "string",
                "description": (
                    "Canonical ref (directive:X, tool:X) or plain path, without extension, such as "
                    "tool:rye/bash."
                ),
            },
            "project_path": _PROJECT,
            "parameters": {
                "type": "object",
                "default": {},
                "description": "Parameters to pass to the item.",
            },
            "dry_run": {
                "type": "boolean",
                "default": False,
                "description": "Validate without executing.",
            },
            "target": {
                "type": "string",
                "default": "local",
                "description": 'Where to execute: "local", "remote" or "remote:NAME".',
            },
            "thread": {
                "type": "string",
                "default": "inline",
                "description": (
                    'How to execute: "inline" returns content in-thread, "fork" spawns a managed '
                    "LLM thread (directives only)."
                ),
            },
            "async": {
                "type": "boolean",
                "default": False,
                "description": "Return immediately with thread_id instead of waiting.",
            },
            "model": {
                "type": "string",
                "description": "For directives: the LLM model of the thread.",
            },
            "limit_overrides": {
                "type": "object",
                "description": f"For directives and graphs: limits ({', '.join(LIMIT_NAMES)}).",
            },
        },
        "required": ["item_id", "project_path"],
    },
    "rye_fetch": {
        "type": "object",
        "properties": {
            "item_id": {
                "type": "string",
                "description": (
                    "Canonical ref of the one item to read (tool:X, directive:X, knowledge:X, "
                    "config:X). Else give query and scope."
                ),
            },
            "project_path": _PROJECT,
            "query": {
                "type": "string",
                "description": (
                    'Words to find items by; AND, OR, NOT, "a phrase", prefix*, title: word; * for '
                    "everything."
                ),
            },
            "scope": {
                "type": "string",
                "description": "Where to search: *, a kind such as tool, or such as tool.acme.*.",
            },
            "source": {
                "type": "string",
                "enum": ["project", "user", "system"],
                "description": "The one space to look in; all by default.",
            },
            "destination": {
                "type": "string",
                "enum": ["project", "user"],
                "description": "With item_id: the space that gets a copy, once a person approved.",
            },
            "limit": {
                "type": "integer",
                "default": 10,
                "description": "With query: how many results at most, 1 to 100.",
            },
            "offset": {
                "type": "integer",
                "default": 0,
                "description": "With query: how many results to pass over.",
            },
        },
        "required": ["project_path"],
    },
    "rye_sign": {
        "type": "object",
        "properties": {
            "item_id": {
                "type": "string",
                "description": "Canonical ref, or a glob such as tool:acme/*.",
            },
            "project_path": _PROJECT,
            "source": {
                "type": "string",
                "enum": ["project", "user"],
                "default": "project",
                "description": "The space to look in.",
            },
        },
        "required": ["item_id", "project_path"],
    },
}
"""The input schema of each tool."""

DESCRIPTIONS: Final[Mapping[str, str]] = {
    "rye_execute": "Execute directives or tools. Every file is verified first.",
    "rye_fetch": "Read an item, verified, or find items by a query.",
    "rye_sign": "Ask the person to sign items. Exactly what they approve is signed.",
}

INSTRUCTIONS: Final = (
    "Tools, directives and knowledge are signed files. Find them with rye_fetch (query and scope), "
    "read one with rye_fetch (item_id), execute one with rye_execute. What is not signed by a "
    "trusted key is refused; only the person can sign it."
)

INSTRUCTIONS_WITHOUT_VERBS: Final = (
    "Tools, prompts and resources are signed files. What is not signed by a trusted key is "
    "refused; only the person can sign it."
)
