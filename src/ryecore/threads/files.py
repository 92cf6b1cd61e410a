"""The texts that a thread leaves for people and for other threads.

Source: docs/design/threads.md#storage; decisions 36 and 47.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import ThreadFile
from ryecore.threads.calls.palette import Palette
from ryecore.threads.records.export import (
    Exported,
    OfferedTool,
    render_capabilities,
    render_export,
)

__all__ = ["export_thread", "started_payload", "write_capabilities"]


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
    """Write the capabilities and tools of a thread."""
    tools = [OfferedTool(tool.spec, tool.source or tool.origin) for tool in palette.tools]
    text = render_capabilities(file.thread_id, file.item_id, file.capabilities, tools)
    await store.write_capabilities(file.thread_id, text)


async def export_thread(store: ThreadStore, file: ThreadFile) -> None:
    """Write the thread's conversation as knowledge, which search finds and no author signs."""
    began = datetime.fromisoformat(file.created_at)
    exported = Exported(
        thread_id=file.thread_id,
        directive=file.directive,
        status=file.status,
        model=file.model,
        created_at=file.created_at,
        duration_s=(datetime.now(UTC) - began).total_seconds(),
        cost=file.cost,
        permissions=file.capabilities,
        capabilities_ref=store.capabilities_ref(file.thread_id),
    )
    await store.export(file.thread_id, partial(render_export, exported))
