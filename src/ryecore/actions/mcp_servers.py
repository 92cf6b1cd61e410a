"""The tools of MCP servers for a host's code, pinned and signed on first approval."""

import hashlib
import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, Self
from urllib.parse import urlsplit

from ryecore.display.sanitize import shorten
from ryecore.errors import InputError
from ryecore.items.metadata import parse_metadata
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import Space
from ryecore.items.verification import VerifiedItem
from ryecore.mcp_client.authoring import (
    pin_tool,
    read_declarations,
    select_tools,
    why_unpinnable,
    write_server,
)
from ryecore.mcp_client.pins import item_name
from ryecore.tools.definition import ToolDef
from ryecore.tools.items import ItemExecutor, pinned_items

__all__ = ["McpServers", "server_named"]

_STARTERS: Final = frozenset(
    {"npx", "uvx", "bunx", "pnpm", "dlx", "pipx", "uv", "run", "node", "python", "python3", "-m"}
)
"""Words of a command line that start a server and don't name it."""

_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_-]+")


class Verify(Protocol):
    """The protocol of what verifies an item, such as `Rye.verify`."""

    def __call__(self, ref: str) -> VerifiedItem:
        """Verify one item, and run nothing."""
        ...


class McpServers:
    """The tools of MCP servers: `tools=[*await rye.mcp("mcp/servers/time")]`.

    Args:
        rye: Executes the server's item, and the tools.
        space: Where items are written: the project.
        verify: Verifies an item.
        sign: Signs the items of a list of refs, once the host has approved.
    """

    def __init__(
        self,
        rye: ItemExecutor,
        space: Space,
        verify: Verify,
        sign: Callable[[Sequence[str]], Awaitable[object]],
    ) -> None:
        self._rye = rye
        self._space = space
        self._verify = verify
        self._sign = sign

    def through(self, executor: ItemExecutor) -> Self:
        """Return the same, with the server's item and its tools executed by another executor."""
        return type(self)(executor, self._space, self._verify, self._sign)

    async def __call__(
        self, /, server: str, *, only: Sequence[str] = (), **options: Any
    ) -> tuple[ToolDef, ...]:
        """Return the tools of a server, to be given to an agent.

        The first time, what the server declares is written as pinned items below
        `.ai/tools/mcp/`, shown to the host's `approve`, and signed once it says yes. From then on
        nobody is asked, and a changed declaration is refused. A server that is given as a command
        line or a URL becomes a signed item the same way, before it is started or reached.

        Args:
            server: The id of a server's item, such as `mcp/servers/time`; a command line such as
                `uvx mcp-server-time`; or a URL of streamable HTTP.
            only: What the server calls the tools that are wanted; by default those that are pinned
                already or, where none is, all that it declares.
            options: The options of `ToolDef.from_item`, such as `needs_approval`.

        Raises:
            NotApproved: The host has no `approve`, or it says no; nothing is left behind.
            RyeError: The server can't be reached, or a tool isn't what was pinned.
        """
        name, config = server_named(server)
        if config is not None:
            await self._add_server(name, config)
        refs = await self._pinned(name, only)
        return tuple([await ToolDef.from_item(self._rye, ref, **options) for ref in refs])

    async def _add_server(self, name: str, config: dict[str, object]) -> None:
        path = write_server(name, config, self._space)
        if path is not None:
            await self._sign_written([f"tool:{name}"], [path])

    async def _pinned(self, server: str, only: Sequence[str]) -> list[ItemRef]:
        wanted = {item_name(one) for one in only}
        found: list[ItemRef] = []
        with suppress(InputError):  # which says that none is pinned
            found = list(await pinned_items(self._rye, server))
        chosen = [ref for ref in found if not only or ref.id.rpartition("/")[2] in wanted]
        if chosen and len(chosen) >= len(wanted):
            return chosen
        return await self._pin(server, only)

    async def _pin(self, server: str, only: Sequence[str]) -> list[ItemRef]:
        """Pin what the server declares now, and have it signed."""
        item = self._verify(f"tool:{server}")
        declared: Any = parse_metadata(item.content, item.source.path)
        if declared.get("tool_type") != "mcp_server":
            raise InputError(
                f"tool:{server} is not an MCP server.",
                next_step="Name an item whose tool_type is mcp_server, a command line or a URL.",
            )
        done: Any = (await self._rye.execute(f"tool:{server}")).raise_for_status()
        offered = read_declarations(done.data["tools"])
        fit = {name: one for name, one in offered.items() if only or not why_unpinnable(one)}
        pinned = [
            pin_tool(
                tool,
                server=server,
                transport=str(declared["config"].get("transport")),
                folder=f"mcp/{server.rpartition('/')[2]}",
                space=self._space,
            )
            for tool in select_tools(fit, only, everything=not only)
        ]
        if not pinned:
            raise InputError(
                f"The server tool:{server} offers no tool that can be pinned.",
                next_step=f"See why: rye mcp tools {server}",
            )
        refs = [f"tool:{one.item_id}" for one in pinned]
        written = [one.path for one in pinned if one.state == "written"]
        await self._sign_written(refs, written)
        return [ItemRef.parse(ref, "tool") for ref in refs]

    async def _sign_written(self, refs: Sequence[str], written: Sequence[Path]) -> None:
        is_signed = False
        try:
            await self._sign(refs)
            is_signed = True
        finally:
            if not is_signed:  # an unsigned file would be in the way
                for path in written:
                    path.unlink(missing_ok=True)


def server_named(server: str) -> tuple[str, dict[str, object] | None]:
    """Return the id of a server's item, and its config where it is a command line or a URL.

    Raises:
        InputError: The command line can't be read.
    """
    text = server.strip()
    if text.startswith(("https://", "http://")):
        return _item_id(urlsplit(text).hostname or "", text), {"transport": "http", "url": text}
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise InputError(
            f"The command line {shorten(text)!r} can't be read: {problem}.",
            next_step="Quote it as for a shell.",
        ) from None
    if len(words) < 2:
        return text.removeprefix("tool:"), None
    programs = (one for one in words if not one.startswith("-"))
    named = next((one for one in programs if Path(one).name not in _STARTERS), "")
    config: dict[str, object] = {"transport": "stdio", "command": words[0], "args": words[1:]}
    return _item_id(named, text), config


def _item_id(named: str, whole: str) -> str:
    """Return an id made of a name, and of the digest of all that it stands for."""
    last = named.rstrip("/").rpartition("/")[2].partition("@")[0] or "server"
    name = _NOT_IN_IDS.sub("-", last).strip("-")[:40] or "server"
    return f"mcp/servers/{name}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"
