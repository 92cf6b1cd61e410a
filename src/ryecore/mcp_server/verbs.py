"""The verbs as MCP tools: `rye_execute`, `rye_fetch` and `rye_sign`, each a documented call.

Source: docs/design/execute.md#parameters.
"""

import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import anyio.to_thread
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, Tool, ToolAnnotations

from ryecore.calls import answer
from ryecore.errors import InputError, RyeError
from ryecore.items.signing import find_files
from ryecore.mcp_server.content import verb_result
from ryecore.mcp_server.running import CallRunner
from ryecore.mcp_server.schemas import DESCRIPTIONS, INPUT_SCHEMAS
from ryecore.policy import CallContext, capability_of
from ryecore.rye import Rye

__all__ = ["VERB_NAMES", "Verbs"]

VERB_NAMES: Final = frozenset(INPUT_SCHEMAS)

_KEY_IN_META: Final = "ryecore/idempotency_key"
"""Where the `_meta` of an `rye_execute` holds its idempotency key, which isn't a parameter."""

_READ_ONLY: Final = frozenset({"rye_fetch"})


class Verbs:
    """The verbs on the projects that are served.

    Args:
        projects: The open projects.
        runner: Runs each call.
        can_sign: Whether clients may ask for signatures and copies.
    """

    def __init__(self, projects: Iterable[Rye], runner: CallRunner, *, can_sign: bool) -> None:
        self._projects = {os.path.realpath(rye.project): rye for rye in projects}
        self._runner = runner
        self.tools = tuple(
            Tool(
                name=name,
                description=DESCRIPTIONS[name],
                input_schema=dict(schema),
                annotations=ToolAnnotations(read_only_hint=name in _READ_ONLY and not can_sign),
            )
            for name, schema in INPUT_SCHEMAS.items()
            if name != "rye_sign" or can_sign
        )
        self.names = frozenset(tool.name for tool in self.tools)

    async def call(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams, *, both: bool
    ) -> CallToolResult:
        """Answer a call; what the caller did wrong is an error result."""
        arguments = {
            key: value for key, value in (params.arguments or {}).items() if value is not None
        }
        meta: Mapping[str, Any] = params.meta or {}
        if params.name == "rye_execute" and _KEY_IN_META in meta:
            arguments["idempotency_key"] = meta[_KEY_IN_META]
        item_id = arguments.get("item_id")
        try:
            rye = self._project(arguments.pop("project_path", None))
            more = frozenset[str]()
            if params.name == "rye_sign":
                more = await self._signable(rye, arguments)

            async def work(call: CallContext) -> dict[str, object]:
                return await answer(params.name, rye, arguments, call)

            return verb_result(await self._runner.run(ctx, params, work, more), both=both)
        except RyeError as error:
            if isinstance(item_id, str):
                error.during(item_id)
            return verb_result(error.to_dict(), both=both)

    def _project(self, path: object) -> Rye:
        served = ", ".join(self._projects)
        if not isinstance(path, str) or not path:
            raise InputError("project_path is required.", next_step=f"Pass one of: {served}.")
        if os.path.isabs(path) and "\0" not in path:
            rye = self._projects.get(os.path.realpath(path))
            if rye is not None:
                return rye
        raise InputError(
            f"The project {path!r} is not served here.", next_step=f"Pass one of: {served}."
        )

    async def _signable(self, rye: Rye, arguments: Mapping[str, Any]) -> frozenset[str]:
        """Return the capabilities to sign what the client names; the person approves each file.

        Where the grants name signatures, only these count.
        """
        if any(grant.startswith("rye.sign.") for grant in self._runner.grants):
            return frozenset()
        space = rye.spaces.user if arguments.get("source") == "user" else rye.spaces.project
        pattern = arguments.get("item_id")
        if not isinstance(pattern, str):
            return frozenset()
        files = await anyio.to_thread.run_sync(partial(find_files, space, pattern))
        return frozenset(
            capability_of("sign", kind, relative.rpartition(".")[0] or relative)
            for kind, _, relative in files
        )
