"""The files of a thread, for people and for other threads.

Source: docs/design/threads.md#storage; decisions 36 and 47.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ryecore.runs.host import RunHost
from ryecore.state.thread_file import THREAD_FILE, TRANSCRIPT, ThreadFile, write_thread_file
from ryecore.state.transcript import Transcript
from ryecore.state.transcript_check import read_records
from ryecore.threads.calls.palette import Palette
from ryecore.threads.records.export import (
    CAPABILITIES_FILE,
    Exported,
    OfferedTool,
    render_capabilities,
    render_export,
    write_capabilities,
    write_export,
)

__all__ = ["leave_knowledge", "make_files", "started_payload"]


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


def make_files(host: RunHost, folder: Path, file: ThreadFile, palette: Palette) -> Transcript:
    """Write a thread's file and its capabilities, and begin its transcript.

    Args:
        host: The host.
        folder: The thread's folder.
        file: The content of its file.
        palette: Its tools.

    Returns:
        The transcript, still empty.

    Raises:
        StateError: The files can't be written.
    """
    write_thread_file(folder / THREAD_FILE, file, host.key, host.durability)
    _leave_capabilities(host, folder, file, palette)
    return Transcript.create(folder / TRANSCRIPT, file.thread_id, host.key, host.durability)


def _leave_capabilities(host: RunHost, folder: Path, file: ThreadFile, palette: Palette) -> None:
    """Write the capabilities and tools of a thread to `capabilities.md`."""
    tools = [OfferedTool(tool.spec, tool.source or tool.origin) for tool in palette.tools]
    text = render_capabilities(file.thread_id, file.item_id, file.capabilities, tools)
    path = folder / CAPABILITIES_FILE
    write_capabilities(path, file.thread_id, text, host.key, host.durability)


def leave_knowledge(host: RunHost, file: ThreadFile) -> None:
    """Write the thread's conversation as knowledge, which search finds and no author signs."""
    folder = host.store.folder_of(file.thread_id)
    began = datetime.fromisoformat(file.created_at)
    place = (folder / CAPABILITIES_FILE).relative_to(host.project_root.parent)
    exported = Exported(
        thread_id=file.thread_id,
        directive=file.directive,
        status=file.status,
        model=file.model,
        created_at=file.created_at,
        duration_s=(datetime.now(UTC) - began).total_seconds(),
        cost=file.cost,
        permissions=file.capabilities,
        capabilities_ref=str(place),
    )
    text = render_export(exported, read_records(folder / TRANSCRIPT))
    write_export(host.project_root, file.thread_id, text, host.key, host.durability)
