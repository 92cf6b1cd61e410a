"""Changes of items, noticed by a watcher and told to the clients that want to hear of them."""

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from ryecore.items.refs import EXPORT_FOLDER
from ryecore.items.spaces import SKIPPED_FOLDERS
from ryecore.lillux.watching import watch
from ryecore.mcp_server.catalog import Catalog, OfferedKind
from ryecore.mcp_server.peers import Peers

__all__ = ["ChangeNotifier"]

_LISTS: Final[Mapping[OfferedKind, tuple[ServerEvent, str]]] = {
    "tool": (ToolsListChanged(), "send_tool_list_changed"),
    "directive": (PromptsListChanged(), "send_prompt_list_changed"),
    "knowledge": (ResourcesListChanged(), "send_resource_list_changed"),
}
_SETTLED_S: Final = 0.05
"""How long nothing changes before clients are told: a checkout changes many files at once."""
_PATIENCE_S: Final = 5.0
"""How long a client that doesn't read is waited for."""
_MAX_FOLDERS: Final = 2_000

_logger = logging.getLogger(__name__)


class ChangeNotifier:
    """Tells clients that a list, or a resource that they subscribed to, has changed.

    Args:
        catalog: What is offered.
        peers: The clients of protocols before 2026.
        fingerprint: Returns what changes with the content of a resource, by its URI.
    """

    def __init__(
        self,
        catalog: Catalog,
        peers: Peers,
        fingerprint: Callable[[str], Awaitable[object]],
    ) -> None:
        self._catalog = catalog
        self._peers = peers
        self._fingerprint = fingerprint
        self.bus = InMemorySubscriptionBus()
        self._listened: dict[str, int] = {}
        self._known: dict[str, object] = {}
        self._running = anyio.Lock()

    async def begin(self, uris: Iterable[str]) -> None:
        """Note that clients listen for changes of resources, from now on."""
        wanted = tuple(uris)
        for uri in wanted:  # all before the first wait, so that `end` undoes all of a cancelled one
            self._listened[uri] = self._listened.get(uri, 0) + 1
        for uri in wanted:
            if uri not in self._known:
                now = await self._fingerprint(uri)
                if uri in self._listened:
                    self._known[uri] = now

    def end(self, uris: Iterable[str]) -> None:
        """Note that a client listens no more."""
        for uri in uris:
            self._listened[uri] = self._listened.get(uri, 1) - 1
            if self._listened[uri] <= 0:
                del self._listened[uri]
                self._known.pop(uri, None)

    async def run(self, *, watching: Callable[[], None] = lambda: None) -> None:
        """Watch the items' folders, and tell of changes, until cancelled.

        Where they can't be watched, the log says so, and nobody is told of changes.
        """
        async with self._running:  # of several transports, one watches at a time
            await self._run(watching)

    async def _run(self, watching: Callable[[], None]) -> None:
        seen = await self._lists()
        is_first = True
        while True:
            folders = await anyio.to_thread.run_sync(self._folders)
            try:
                async with watch(*folders) as watcher:
                    watching()
                    # What changed before the watch began, or a folder that was new meanwhile.
                    seen = await self._tell(seen)
                    if is_first:  # or before the lists were read
                        await self._tell_updates()
                        is_first = False
                    await watcher.changed()
                    while await watcher.changed(_SETTLED_S):
                        pass
            except OSError as problem:
                _logger.warning("changes of items aren't noticed: %s", problem)
                return
            seen = await self._tell(seen)

    async def _tell(self, before: Mapping[OfferedKind, object]) -> Mapping[OfferedKind, object]:
        after = await self._lists()
        for kind, (event, method) in _LISTS.items():
            if before[kind] != after[kind]:
                await self.bus.publish(event)
                for peer in self._peers:
                    await _notify(getattr(peer.session, method))
        if before["knowledge"] != after["knowledge"]:
            await self._tell_updates()
        return after

    async def _tell_updates(self) -> None:
        for uri in [*self._listened]:
            now = await self._fingerprint(uri)
            if now == self._known.get(uri) or uri not in self._listened:
                continue
            self._known[uri] = now
            await self.bus.publish(ResourceUpdated(uri))
            for peer in self._peers:
                if uri in peer.subscribed:
                    await _notify(partial(peer.session.send_resource_updated, uri))

    async def _lists(self) -> Mapping[OfferedKind, object]:
        kinds: tuple[OfferedKind, ...] = ("tool", "directive", "knowledge")
        return {
            kind: await anyio.to_thread.run_sync(partial(self._catalog.fingerprint, kind))
            for kind in kinds
        }

    def _folders(self) -> list[str]:
        """Return the folders of items of project and user space, of all kinds that are offered."""
        found: list[str] = []
        for project in self._catalog.projects:
            spaces = project.rye.spaces
            for space in (spaces.project, spaces.user):
                found += [str(space.root.parent), str(space.root)]
                for kind in ("tool", "directive", "knowledge", "config"):
                    found += _below(str(space.folder(kind)))
        # For a folder that isn't there yet, the one above it.
        existing = [one for one in dict.fromkeys(found) if Path(one).is_dir()]
        if len(existing) > _MAX_FOLDERS:
            left = len(existing) - _MAX_FOLDERS
            _logger.warning(
                "changes in %d folders of items aren't noticed: there are too many", left
            )
        return existing[:_MAX_FOLDERS]


def _below(top: str) -> Iterable[str]:
    """Yield a folder and those below it, without those of caches and of threads' exports."""
    for folder, names, _ in os.walk(top):
        yield folder
        below = os.path.relpath(folder, top)
        names[:] = sorted(
            one
            for one in names
            if one not in SKIPPED_FOLDERS and os.path.normpath(f"{below}/{one}") != EXPORT_FOLDER
        )


async def _notify(send: Callable[[], Awaitable[None]]) -> None:
    """Notify one client; one that is gone, or doesn't read, doesn't hold up the others."""
    try:
        with anyio.move_on_after(_PATIENCE_S):
            await send()
    except Exception:  # only of the client's connection
        _logger.exception("A client can't be told of a change")
