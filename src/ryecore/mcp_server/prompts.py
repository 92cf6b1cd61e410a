"""Directives as prompts, with their inputs as arguments.

A line of a directive's body that is an image of Markdown, `![…](URI)`, becomes the resource itself:
an image, audio, or an embedded resource. So does the knowledge that its context names.

Source: docs/how-to/serve-mcp.md#directives-as-prompts.
"""

import html
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    ListPromptsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ryecore.directives.inputs import PLACEHOLDER
from ryecore.directives.model import ContextSpec
from ryecore.errors import InputError, ItemError, RyeError
from ryecore.items.refs import ItemRef
from ryecore.mcp_server.catalog import Catalog, Entry, ServedProject
from ryecore.mcp_server.knowledge import default_uri
from ryecore.mcp_server.paging import page_of
from ryecore.mcp_server.resources import Contents, Resources
from ryecore.mcp_server.running import CallRunner
from ryecore.policy import CallContext

if TYPE_CHECKING:
    from ryecore.actions.directive import DirectiveResult
    from ryecore.actions.fetch import FetchedItem

__all__ = ["Prompts"]

_EMBED: Final = re.compile(r"^[ \t]*!\[(?P<alt>[^\]\n]*)\]\((?P<target>[^\s()]+)\)[ \t]*$", re.M)
_MAX_LINE_CHARS: Final = 4096
_QUESTION: Final = "inputs"
_PRIMITIVE: Final = frozenset({"string", "integer", "number", "boolean"})
_ELICITED: Final = frozenset({"type", "title", "description", "default", "enum", "format"})
_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
"""The formats that a form of MCP has."""


class Prompts:
    """The prompts of the server."""

    def __init__(self, catalog: Catalog, runner: CallRunner, resources: Resources) -> None:
        self._catalog = catalog
        self._runner = runner
        self._resources = resources
        self._seen: object = None
        self._declared: dict[str, tuple[Entry, Prompt | None]] = {}

    async def list(
        self, _ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        """List a page of the prompts. What doesn't verify is left out."""
        entries = await self._catalog.entries("directive")
        cursor = params.cursor if params is not None else None
        page, more = page_of(entries, cursor, self._catalog.page_size)
        seen = await anyio.to_thread.run_sync(self._catalog.fingerprint, "directive")
        if seen is None or seen != self._seen:
            self._declared.clear()
            self._seen = seen
        prompts = [await self._prompt(entry) for entry in page.values()]
        return ListPromptsResult(prompts=[one for one in prompts if one], next_cursor=more)

    async def get(
        self, ctx: ServerRequestContext[Any, Any], params: GetPromptRequestParams
    ) -> GetPromptResult | InputRequiredResult:
        """Return a directive's directions, with the arguments put in."""
        entry = await self.entry(params.name)
        if entry is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown prompt: {params.name}")
        try:
            inputs = await self._inputs(entry, ctx, params)
            if isinstance(inputs, InputRequiredResult):
                return inputs
            return await self._messages(entry, inputs, ctx, params)
        except (InputError, ItemError) as error:
            text = f"{error.message} {error.next_step or ''}".strip()
            raise MCPError(code=INVALID_PARAMS, message=text) from None
        except RyeError as error:
            raise MCPError(code=INTERNAL_ERROR, message=error.message) from None

    async def entry(self, name: str) -> Entry | None:
        """Return the directive of a prompt; None where none has this name."""
        return (await self._catalog.entries("directive")).get(name)

    async def schema(self, entry: Entry) -> Mapping[str, Any]:
        """Return the JSON Schema of a directive's inputs, verified now."""
        return await entry.project.rye.schema(entry.ref) or {}

    async def _prompt(self, entry: Entry) -> Prompt | None:
        known = self._declared.get(entry.name)
        if known is not None and known[0].ref == entry.ref:
            return known[1]
        prompt: Prompt | None = None
        try:
            schema = await self.schema(entry)
            said = (await entry.project.rye.fetch(entry.ref)).description
            required = schema.get("required", ())
            prompt = Prompt(
                name=entry.name,
                title=said.title,
                description=said.description or None,
                arguments=[
                    PromptArgument(
                        name=name,
                        description=one.get("description"),
                        required=name in required,
                    )
                    for name, one in schema.get("properties", {}).items()
                ],
            )
        except RyeError as error:
            self._catalog.leave_out(str(entry.ref), error)
        self._declared[entry.name] = (entry, prompt)
        return prompt

    async def _inputs(
        self, entry: Entry, ctx: ServerRequestContext[Any, Any], params: GetPromptRequestParams
    ) -> Mapping[str, Any] | InputRequiredResult:
        """Return the inputs; the person is asked for required ones that are missing.

        Where nobody can be asked, or answers, the directive's own error says what is missing.
        """
        given: dict[str, Any] = dict(params.arguments or {})
        schema = await self.schema(entry)
        missing = [name for name in schema.get("required", ()) if name not in given]
        offered = ctx.session.client_capabilities
        elicits = offered.elicitation if offered is not None else None
        if not missing or elicits is None or (elicits.form is None and elicits.url is not None):
            return given
        form = _form(schema, missing)
        question = f"The prompt {params.name} needs: {', '.join(missing)}."
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            try:
                answer = await ctx.session.elicit_form(question, form, ctx.request_id)
            except (MCPError, NoBackChannelError):
                return given
            return given | _answered(answer, missing)
        answered = (params.input_responses or {}).get(_QUESTION)
        if answered is None:
            asked = ElicitRequestFormParams(message=question, requested_schema=form)
            return InputRequiredResult(input_requests={_QUESTION: ElicitRequest(params=asked)})
        return given | _answered(answered, missing)

    async def _messages(
        self,
        entry: Entry,
        inputs: Mapping[str, Any],
        ctx: ServerRequestContext[Any, Any],
        params: GetPromptRequestParams,
    ) -> GetPromptResult:
        rye = entry.project.rye

        from ryecore.actions.directive import DirectiveResult  # noqa: PLC0415 - takes long to load

        async def work(call: CallContext) -> "tuple[FetchedItem, DirectiveResult, ContextSpec]":
            found = await rye.fetch(entry.ref)
            done = await rye.execute(entry.ref, inputs, ctx=call)
            if not isinstance(done, DirectiveResult):
                raise TypeError(f"{entry.ref} isn't a directive.")
            context = ContextSpec()
            if any(word in found.item.content for word in (b"<context", b"extends")):
                planned = await rye.execute(entry.ref, inputs, dry_run=True, ctx=call)
                if isinstance(planned, DirectiveResult) and planned.directive_plan is not None:
                    context = planned.directive_plan.context
            return found, done, context

        # One request makes the calls of all resources in it, too: none of them can be continued.
        found, done, context = await self._runner.run(ctx, params, work, parks=False)
        before, after = (*context.system, *context.before), context.after
        messages = [
            *[one async for one in self._knowledge(entry.project, before)],
            *[
                one
                async for one in self._body(found.item.content, done.your_directions, ctx, params)
            ],
            *[one async for one in self._knowledge(entry.project, after)],
        ]
        return GetPromptResult(
            description=found.description.description or None,
            messages=[PromptMessage(role="user", content=one) for one in messages],
        )

    async def _knowledge(
        self, project: ServedProject, names: tuple[str, ...]
    ) -> AsyncIterator[ContentBlock]:
        """Yield the knowledge of a directive's context that the client may read."""
        for name in names:
            uri = default_uri(project.label, ItemRef.parse(name, "knowledge").id)
            entry = await self._resources.entry(uri)
            if entry is not None:
                yield embedded(await self._resources.knowledge(entry))

    async def _body(
        self,
        signed: bytes,
        text: str,
        ctx: ServerRequestContext[Any, Any],
        params: GetPromptRequestParams,
    ) -> AsyncIterator[ContentBlock]:
        """Yield a text, with each resource that a line of it names in its place.

        Not one that inputs have put there: a line of the signed file has to begin it.
        """
        begin = 0
        lines = _embedding_lines(signed.decode(errors="replace"))
        for line in _EMBED.finditer(text):
            row = line[0].strip()
            if len(row) > _MAX_LINE_CHARS or not any(one.fullmatch(row) for one in lines):
                continue
            contents = await self._resources.contents(ctx, params, line["target"], parks=False)
            if not contents:
                continue  # the line stays text
            if before := text[begin : line.start()].strip():
                yield TextContent(type="text", text=before)
            for one in contents:
                yield embedded(one)
            begin = line.end()
        if (rest := text[begin:].strip()) or not begin:
            yield TextContent(type="text", text=rest)


def _embedding_lines(signed: str) -> list[re.Pattern[str]]:
    """Return what each line of a signed file matches that embeds a resource, inputs put in."""
    lines = [html.unescape(one.strip()) for one in signed.splitlines() if "![" in one]
    return [
        re.compile(".*".join(map(re.escape, PLACEHOLDER.sub("\0", one).split("\0"))))
        for one in lines
        if one.startswith("![")
    ]


def embedded(contents: Contents) -> ContentBlock:
    """Return a resource's contents as a block: an image or audio as such."""
    if isinstance(contents, BlobResourceContents):
        kind = contents.mime_type or ""
        if kind.startswith("image/"):
            return ImageContent(type="image", data=contents.blob, mime_type=kind)
        if kind.startswith("audio/"):
            return AudioContent(type="audio", data=contents.blob, mime_type=kind)
    return EmbeddedResource(type="resource", resource=contents)


def _form(schema: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the form that asks for inputs: a list or an object is asked as JSON text."""
    properties: dict[str, Any] = {}
    for name in names:
        declared = schema.get("properties", {}).get(name, {})
        field = {key: value for key, value in declared.items() if key in _ELICITED}
        if field.get("type") not in _PRIMITIVE:
            field = {"type": "string", "description": f"{field.get('description', '')} (JSON)"}
        if field.get("format") not in _FORMATS:
            field.pop("format", None)
        properties[name] = field
    return {"type": "object", "properties": properties, "required": names}


def _answered(answer: object, names: list[str]) -> dict[str, Any]:
    if not isinstance(answer, ElicitResult) or answer.action != "accept":
        return {}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in (answer.content or {}).items()
        if name in names
    }
