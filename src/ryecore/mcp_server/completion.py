"""Completion of a prompt's arguments and of the variables in a template of URIs.

Source: docs/how-to/serve-mcp.md#completion.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    PromptReference,
)

from ryecore.errors import RyeError
from ryecore.mcp_server.catalog import Catalog
from ryecore.mcp_server.prompts import Prompts
from ryecore.mcp_server.resources import Resources, knowledge_template

__all__ = ["Completions", "completed", "values_of"]

_MAX_VALUES: Final = 100


class Completions:
    """The completions of the server."""

    def __init__(self, catalog: Catalog, prompts: Prompts, resources: Resources) -> None:
        self._catalog = catalog
        self._prompts = prompts
        self._resources = resources

    async def complete(
        self, _ctx: ServerRequestContext[Any, Any], params: CompleteRequestParams
    ) -> CompleteResult:
        """Return the values that fit what was typed."""
        ref, argument = params.ref, params.argument
        try:
            if isinstance(ref, PromptReference):
                known = await self._of_prompt(ref.name, argument.name)
            else:
                known = await self._of_template(ref.uri, argument.name)
        except RyeError as error:
            raise MCPError(code=INVALID_PARAMS, message=error.message) from None
        return CompleteResult(completion=completed(known, argument.value))

    async def _of_prompt(self, name: str, argument: str) -> list[str]:
        entry = await self._prompts.entry(name)
        if entry is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown prompt: {name}")
        schema = await self._prompts.schema(entry)
        return values_of(schema.get("properties", {}).get(argument))

    async def _of_template(self, uri: str, argument: str) -> list[str]:
        for project in self._catalog.projects:
            if uri == knowledge_template(project.label):
                entries = (await self._catalog.entries("knowledge")).values()
                return sorted(one.ref.id for one in entries if one.project is project)
        for one in self._resources.tool_templates():
            if one.declared.uri == uri:
                schema = await one.project.rye.schema(one.ref) or {}
                return values_of(schema.get("properties", {}).get(argument))
        raise MCPError(code=INVALID_PARAMS, message=f"Unknown resource template: {uri}")


def values_of(declared: object) -> list[str]:
    """Return the values that a schema of an argument allows, where it lists them."""
    if not isinstance(declared, Mapping):
        return []
    listed = declared.get("enum", declared.get("examples"))
    if isinstance(listed, list | tuple):
        return [one for one in listed if isinstance(one, str)]
    if "const" in declared:
        return [str(declared["const"])]
    return ["true", "false"] if declared.get("type") == "boolean" else []


def completed(known: Iterable[str], typed: str) -> Completion:
    """Return the values that begin with what was typed, then those that contain it."""
    lower = typed.lower()
    begins, holds = [], []
    for one in known:
        if one.lower().startswith(lower):
            begins.append(one)
        elif lower in one.lower():
            holds.append(one)
    found = [*begins, *holds]
    return Completion(
        values=found[:_MAX_VALUES], total=len(found), has_more=len(found) > _MAX_VALUES
    )
