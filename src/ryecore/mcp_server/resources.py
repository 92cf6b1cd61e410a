"""Knowledge items as resources, and resources that signed tools make.

Source: docs/how-to/serve-mcp.md#knowledge-as-resources.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio.to_thread
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ryecore.chain.model import ExecutionResult
from ryecore.errors import RyeError
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.lillux.digests import sha256_hex
from ryecore.mcp_server.approvals import InputRequired
from ryecore.mcp_server.catalog import Catalog, Entry, ServedProject
from ryecore.mcp_server.content import content_blocks, plain_json
from ryecore.mcp_server.knowledge import (
    SCHEME,
    contents_of,
    default_uri,
    read_contents,
    resource_of,
)
from ryecore.mcp_server.offer import ResourceTemplateEntry
from ryecore.mcp_server.paging import page_of
from ryecore.mcp_server.running import CallRunner
from ryecore.policy import CallContext, allows, capability_of
from ryecore.strict_json import read_json, whole_text

__all__ = ["Contents", "Resources", "ToolTemplate", "not_found"]

Contents = TextResourceContents | BlobResourceContents

_NOT_FOUND_BEFORE_2026: Final = -32002


@frozen(eq=False)
class _Known:
    """A resource that was listed, and its item."""

    entry: Entry
    resource: Resource


@frozen(eq=False)
class ToolTemplate:
    """Resources that a tool of a project makes, by a template of their URIs."""

    project: ServedProject
    declared: ResourceTemplateEntry

    @property
    def ref(self) -> ItemRef:
        """The tool."""
        return ItemRef("tool", self.declared.tool)


class Resources:
    """The resources of the server."""

    def __init__(self, catalog: Catalog, runner: CallRunner) -> None:
        self._catalog = catalog
        self._runner = runner
        self._seen: object = None
        self._by_uri: dict[str, _Known] = {}

    async def list(
        self, _ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """List a page of the resources. What doesn't verify is left out."""
        listed = {uri: one.resource for uri, one in sorted((await self._known()).items())}
        cursor = params.cursor if params is not None else None
        page, more = page_of(listed, cursor, self._catalog.page_size)
        return ListResourcesResult(resources=[*page.values()], next_cursor=more)

    async def list_templates(
        self, _ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """List a page of the templates: that of each project's knowledge, and those of tools."""
        listed: dict[str, ResourceTemplate] = {}
        for project in self._catalog.projects:
            if self._catalog.offer(project).knowledge:
                uri = knowledge_template(project.label)
                listed[uri] = ResourceTemplate(
                    uri_template=uri,
                    name=f"{project.label}__knowledge",
                    title="Knowledge",
                    description="A knowledge item by its id, such as acme/tides.",
                )
        for one in self.tool_templates():
            uri = one.declared.uri
            listed[uri] = ResourceTemplate(
                uri_template=uri,
                name=one.declared.tool.replace("/", "__"),
                title=one.declared.title or None,
                mime_type=one.declared.mime_type,
            )
        cursor = params.cursor if params is not None else None
        page, more = page_of(dict(sorted(listed.items())), cursor, self._catalog.page_size)
        return ListResourceTemplatesResult(resource_templates=[*page.values()], next_cursor=more)

    async def read(
        self, ctx: ServerRequestContext[Any, Any], params: ReadResourceRequestParams
    ) -> ReadResourceResult | InputRequiredResult:
        """Read a resource, verified now."""
        try:
            contents = await self.contents(ctx, params, params.uri)
        except InputRequired as question:
            return question.result
        except RyeError as error:
            raise MCPError(code=INTERNAL_ERROR, message=error.message) from None
        if not contents:
            raise not_found(params.uri, ctx.protocol_version)
        return ReadResourceResult(contents=[*contents])

    async def contents(
        self, ctx: ServerRequestContext[Any, Any], params: Any, uri: str, *, parks: bool = True
    ) -> tuple[Contents, ...]:
        """Return the contents of a resource; none where there is no such resource.

        `parks` says whether its tool may ask a client since 2026, as in `CallRunner.run`.

        Raises:
            RyeError: It doesn't verify, or its tool can't run.
            MCPError: Its tool failed.
        """
        entry = await self.entry(uri)
        if entry is not None:
            return (await self.knowledge(entry),)
        for one in self.tool_templates():
            values = UriTemplate.parse(one.declared.uri).match(uri)
            if values is not None:
                return await self._made(one, values, ctx, params, uri, parks=parks)
        return ()

    async def entry(self, uri: str) -> Entry | None:
        """Return the knowledge item of a URI; None where no item that is offered has it."""
        if not uri.startswith(f"{SCHEME}:"):
            known = (await self._known()).get(uri)
            return None if known is None else known.entry
        # One that declares another URI is known by its id, too.
        items = (await self._catalog.entries("knowledge")).values()
        return next((one for one in items if _uri_of(one) == uri), None)

    async def knowledge(self, entry: Entry) -> Contents:
        """Return the content of a knowledge item, verified now."""
        call = CallContext(capabilities=self._runner.grants, caller="mcp")
        found = await entry.project.rye.fetch(entry.ref, ctx=call)
        return await anyio.to_thread.run_sync(partial(read_contents, found, _uri_of(entry)))

    async def is_there(self, uri: str) -> bool:
        """Return whether a client may read a resource of this URI, or a tool may make it."""
        if await self.entry(uri) is not None:
            return True
        templates = self.tool_templates()
        return any(UriTemplate.parse(one.declared.uri).match(uri) is not None for one in templates)

    async def stamp(self, uri: str) -> object:
        """Return what changes with the content of a knowledge item's resource."""
        entry = await self.entry(uri)
        if entry is None:
            return None
        try:
            contents = await self.knowledge(entry)
        except RyeError as error:
            return error.message
        return sha256_hex(contents.model_dump_json().encode())  # the content may be large

    def tool_templates(self) -> tuple[ToolTemplate, ...]:
        """Return the templates of tools that the client may execute."""
        return tuple(
            ToolTemplate(project, declared)
            for project in self._catalog.projects
            for declared in self._catalog.offer(project).templates
            if allows(self._runner.grants, capability_of("execute", "tool", declared.tool))
        )

    async def _known(self) -> Mapping[str, _Known]:
        """Return the resources by URI, read anew where a file has changed."""
        seen = await anyio.to_thread.run_sync(self._catalog.fingerprint, "knowledge")
        if seen is not None and seen == self._seen:
            return self._by_uri
        found: dict[str, _Known] = {}
        for entry in (await self._catalog.entries("knowledge")).values():
            try:
                item = await entry.project.rye.fetch(entry.ref)
                resource = resource_of(item, entry.name, _uri_of(entry))
            except RyeError as error:
                self._catalog.leave_out(str(entry.ref), error)
                continue
            found.setdefault(resource.uri, _Known(entry, resource))
        self._by_uri, self._seen = found, seen
        return found

    async def _made(
        self,
        template: ToolTemplate,
        values: Mapping[str, Any],
        ctx: ServerRequestContext[Any, Any],
        params: Any,
        uri: str,
        *,
        parks: bool,
    ) -> tuple[Contents, ...]:
        rye = template.project.rye

        async def work(call: CallContext) -> ExecutionResult:
            schema = await rye.schema(template.ref, ctx=call)
            return await rye.execute(template.ref, _typed(values, schema), ctx=call)

        done = await self._runner.run(ctx, params, work, parks=parks)
        if not done.success:
            why = whole_text(done.error or "The tool failed.")
            raise MCPError(code=INTERNAL_ERROR, message=why)
        return made_contents(done.data, uri, template.declared.mime_type)


def knowledge_template(label: str) -> str:
    """Return the template of the URIs of a project's knowledge."""
    return f"{SCHEME}://{label}/knowledge/{{+id}}"


def not_found(uri: str, protocol_version: str) -> MCPError:
    """Return the error of a resource that isn't there, as a version of the protocol has it."""
    is_modern = protocol_version in MODERN_PROTOCOL_VERSIONS
    code = INVALID_PARAMS if is_modern else _NOT_FOUND_BEFORE_2026
    return MCPError(code=code, message="Resource not found", data={"uri": uri})


def made_contents(data: object, uri: str, mime_type: str | None) -> tuple[Contents, ...]:
    """Return what a tool returned as the contents of a resource; none for null. Pure."""
    if data is None:
        return ()
    blocks = content_blocks(data)
    if blocks is None:
        if isinstance(data, str):
            kind = mime_type or "text/plain"
            return (TextResourceContents(uri=uri, mime_type=kind, text=whole_text(data)),)
        text = json.dumps(plain_json(data), ensure_ascii=False)
        kind = mime_type or "application/json"
        return (TextResourceContents(uri=uri, mime_type=kind, text=text),)
    found: list[Contents] = []
    for one in blocks:
        if isinstance(one, TextContent):
            kind = mime_type or "text/plain"
            found.append(TextResourceContents(uri=uri, mime_type=kind, text=one.text))
        elif isinstance(one, ImageContent | AudioContent):
            found.append(_decoded(one.data, uri, mime_type or one.mime_type))
        elif isinstance(one, EmbeddedResource):
            found.append(one.resource)
    return tuple(found)


def _decoded(data: str, uri: str, mime_type: str) -> Contents:
    try:
        return contents_of(base64.b64decode(data, validate=True), uri, mime_type)
    except binascii.Error:
        raise MCPError(code=INTERNAL_ERROR, message="The tool returned broken base64.") from None


def _uri_of(entry: Entry) -> str:
    return default_uri(entry.project.label, entry.ref.id)


def _typed(values: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return variables of a URI as parameters: a number or a boolean where the schema has one."""
    properties = (schema or {}).get("properties")
    typed: dict[str, Any] = {}
    for name, value in values.items():
        declared = properties.get(name) if isinstance(properties, Mapping) else None
        kind = declared.get("type") if isinstance(declared, Mapping) else None
        typed[name] = value
        if kind in ("integer", "number", "boolean"):
            with suppress(ValueError):  # then the schema's own error says what is expected
                typed[name] = read_json(value)
    return typed
