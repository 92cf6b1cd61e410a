"""The texts that a thread leaves for people and search: capabilities.md and its knowledge export.

The store signs and writes them. Text of a model or a tool can neither close a fence,
nor add to the frontmatter, nor control a terminal.

Source: docs/design/threads.md#storage; decisions 5, 36 and 47.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from ryecore.convert.json_text import indented_json, make_encoder
from ryecore.convert.money import write_usd
from ryecore.display.sanitize import escape_markdown
from ryecore.frozen import frozen
from ryecore.items.refs import EXPORT_FOLDER
from ryecore.llm.request import ToolSpec
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import ThreadFile
from ryecore.threads.calls.palette import Palette
from ryecore.threads.records.conversation import Conversation, fenced

__all__ = [
    "OfferedTool",
    "export_thread",
    "frontmatter",
    "leave_files",
    "render_capabilities",
    "render_export",
    "started_payload",
    "write_capabilities",
]

_scalar_json: Final = make_encoder(ascii_only=False, spaced=True, default=dict)
_parameters_json: Final = make_encoder(ascii_only=False, allow_nan=True, default=dict)


def frontmatter(fields: Mapping[str, object]) -> str:
    """Return fields as YAML frontmatter, each on its own line, which no value can leave.

    The names are trusted, the JSON-ready values aren't.
    """
    lines = _lines(fields)
    if not (lines.isascii() and "\\" not in lines and lines.replace("\n", "").isprintable()):
        # JSON that is YAML, too, has neither lone surrogates nor unprintable text.
        lines = _lines({name: _shown(value) for name, value in fields.items()})
    return f"```yaml\n{lines}```\n"


def _lines(fields: Mapping[str, object]) -> str:
    return "".join([f"{name}: {_scalar_json(value)}\n" for name, value in fields.items()])


def _shown(value: object) -> object:
    if isinstance(value, str):
        return escape_markdown(value)
    if isinstance(value, Mapping):
        return {escape_markdown(str(name)): _shown(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    return value


# Capabilities


@frozen
class OfferedTool:
    """A tool that a thread's model may call, and its target: a canonical ref or an action."""

    spec: ToolSpec
    target: str


def render_capabilities(
    thread_id: str,
    directive: str,
    capabilities: Sequence[str],
    tools: Sequence[OfferedTool],
    left_out: Sequence[str] = (),
) -> str:
    """Render the capabilities and the tools of a thread, and why others were left out."""
    parts = [
        frontmatter({"thread_id": thread_id, "directive": directive, "tools": len(tools)}),
        f"\n# What {thread_id} may do\n\n",
        fenced(_tree(capabilities) or "nothing"),
        "\n## Tools\n",
    ]
    for number, tool in enumerate(tools, start=1):
        spec = tool.spec
        parameters = _parameters_json(spec.parameters)
        shown = _definition(spec.name, tool.target, spec.description, parameters)
        parts += (f"\n### Tool {number}\n\n", shown)
    if not tools:
        parts.append("\nNone.\n")
    if left_out:
        parts += ("\n## Left out\n\n", fenced("\n".join(" ".join(one.split()) for one in left_out)))
    return "".join(parts)


@lru_cache(maxsize=1_024)  # most threads have the tools of earlier ones
def _definition(name: str, target: str, description: str, parameters: str) -> str:
    definition = {
        "name": name,
        "target": target,
        "description": description,
        "parameters": json.loads(parameters),
    }
    return fenced(indented_json(definition), "json")


def _tree(capabilities: Iterable[str]) -> str:
    """Render capabilities as a tree of their dotted parts."""
    lines: list[str] = []
    before: list[str] = []
    for capability in sorted(set(capabilities)):
        parts = capability.split(".")
        shared = 0
        while shared < min(len(parts), len(before)) and parts[shared] == before[shared]:
            shared += 1
        shared = min(shared, len(parts) - 1)
        lines += ("  " * depth + parts[depth] for depth in range(shared, len(parts)))
        before = parts
    return "\n".join(lines)


# The knowledge export


def render_export(
    thread: ThreadFile, duration_s: float, capabilities_ref: str, conversation: str
) -> str:
    """Render a thread as knowledge: the facts, and its conversation as markdown.

    The path of its capabilities.md is relative to the project's folder.
    """
    folder = thread.thread_id.rpartition("/")[0]
    cost = thread.cost
    facts = frontmatter(
        {
            "name": thread.thread_id.rpartition("/")[2],
            "title": f"Thread {thread.thread_id}",
            "entry_type": "thread_transcript",
            "category": f"{EXPORT_FOLDER}/{folder}" if folder else EXPORT_FOLDER,
            "version": "1.0.0",
            "author": "ryecore",
            "created_at": thread.created_at,
            "thread_id": thread.thread_id,
            "directive": thread.directive,
            "status": thread.status,
            "model": thread.model,
            "duration": f"{duration_s:.1f}s",
            "turns": cost.turns,
            "tokens": {"input": cost.input_tokens, "output": cost.output_tokens},
            "spend": write_usd(cost.spend_microcents),
            "tags": ["thread", thread.status],
            "permissions": list(thread.capabilities),
            "capabilities_ref": capabilities_ref,
        }
    )
    return f"{facts}\n# Thread {thread.thread_id}\n{conversation}"


# The files


def started_payload(
    file: ThreadFile, inputs: Mapping[str, object], palette: Palette, muted: frozenset[str]
) -> dict[str, object]:
    """Return the payload of `thread_started`, from which decisions can be replayed."""
    return {
        **file.to_dict(),
        "inputs": dict(inputs),
        "tools": {tool.name: tool.capability for tool in palette.tools},
        "muted_hooks": sorted(muted),
    }


async def write_capabilities(store: ThreadStore, file: ThreadFile, palette: Palette) -> None:
    """Write the capabilities and tools of a thread, and the tools that its model doesn't see."""
    tools = [OfferedTool(tool.spec, tool.source or tool.origin) for tool in palette.tools]
    text = render_capabilities(
        file.thread_id, file.item_id, file.capabilities, tools, palette.left_out
    )
    await store.write_capabilities(file.thread_id, text)


async def export_thread(store: ThreadStore, file: ThreadFile, conversation: Conversation) -> None:
    """Write the thread's conversation as knowledge, which search finds and no author signs."""
    await store.export(file.thread_id, _export_of(store, file, conversation))


async def leave_files(store: ThreadStore, file: ThreadFile, conversation: Conversation) -> None:
    """Write the file of a thread that ends, and its conversation as `export_thread` does."""
    await store.leave_files(file, _export_of(store, file, conversation))


def _export_of(store: ThreadStore, file: ThreadFile, conversation: Conversation) -> str:
    began = datetime.fromisoformat(file.created_at)
    duration_s = (datetime.now(UTC) - began).total_seconds()
    ref = store.capabilities_ref(file.thread_id)
    return render_export(file, duration_s, ref, conversation.markdown)
