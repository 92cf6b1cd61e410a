# rye:signed:2026-11-28T17:20:55Z:b7a1c449b2d3c230fee4c8e839a54a84588c82d9e04ea2b00e572f127ca41085:c8qQNanYe2N8r3nlVomc0aRtwtJPZMvjEKyftGPN1t-bKSOy9SwT51XhsYIV4edhDro-BN15D62W5owEB-MPDA:a50d0ff255b90b74
"""The definition of the orchestrator, the tool with which threads manage threads.

ryecore serves it itself: a separate process would know neither its caller, and so which threads the
caller may reach, nor the host's models, with which threads resume.
"""

from __future__ import annotations

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/agent/threads"
__tool_description__ = (
    "Manage the threads that you have started: wait for them, see their status, read their "
    "results, stop them, resume them. It reaches your own threads and those below them."
)

CONFIG_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "operation": {
            "type": "string",
            "enum": [
                "wait_threads",
                "cancel_thread",
                "kill_thread",
                "get_status",
                "list_active",
                "aggregate_results",
                "get_chain",
                "chain_search",
                "read_transcript",
                "resume_thread",
                "handoff_thread",
            ],
            "description": "wait_threads and aggregate_results take thread_ids; "
            "list_active takes nothing; chain_search takes query; "
            "resume_thread takes thread_id and message; the others take "
            "thread_id.",
        },
        "thread_id": {
            "type": "string",
            "minLength": 1,
            "maxLength": 512,
            "description": "One thread. chain_search searches your own chain without it.",
        },
        "thread_ids": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 512},
            "minItems": 1,
            "maxItems": 1000,
            "description": "Several threads.",
        },
        "timeout_s": {
            "type": "number",
            "minimum": 0,
            "maximum": 3600,
            "default": 600,
            "description": "wait_threads: seconds to wait at most.",
        },
        "mode": {
            "type": "string",
            "enum": ["all", "any"],
            "default": "all",
            "description": "wait_threads: wait for all, or for the first one.",
        },
        "query": {
            "type": "string",
            "minLength": 1,
            "maxLength": 500,
            "description": "chain_search: what to find in the transcripts.",
        },
        "search_type": {
            "type": "string",
            "enum": ["text", "regex"],
            "default": "text",
            "description": "chain_search: a text in any case, or a regular expression.",
        },
        "max_results": {
            "type": "integer",
            "minimum": 1,
            "maximum": 50,
            "default": 50,
            "description": "chain_search: the most records to find.",
        },
        "tail_lines": {
            "type": "integer",
            "minimum": 1,
            "maximum": 500,
            "default": 50,
            "description": "read_transcript: how many of the last records.",
        },
        "types": {
            "type": "array",
            "items": {"type": "string", "maxLength": 64},
            "minItems": 1,
            "maxItems": 50,
            "description": "read_transcript: only records of these types, such as cognition_out.",
        },
        "message": {
            "type": "string",
            "minLength": 1,
            "maxLength": 100_000,
            "description": "resume_thread: the message to the thread's model.",
        },
    },
    "required": ["operation"],
    "additionalProperties": False,
}


def execute(params: dict[str, object], project_path: str) -> dict[str, object]:
    """Refuse: this process doesn't know its caller."""
    return {
        "success": False,
        "error": "The orchestrator runs inside ryecore only, for threads and for the host. "
        "From a shell, use rye threads.",
    }
