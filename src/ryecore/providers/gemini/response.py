"""Gemini's answers as chunks."""

import base64
import json
import uuid
from typing import Final

import anyio.to_thread
from google.genai import types

from ryecore.llm import (
    LlmError,
    MediaChunk,
    MediaStore,
    ReasoningDelta,
    StopReason,
    StreamChunk,
    StreamEnd,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    UsageUpdate,
)
from ryecore.providers.errors import BrokenAnswer

__all__ = ["MADE", "ResponseReader", "read_response"]

MADE: Final = "made-"
"""The prefix of an id made for a call that came without one. It isn't sent back."""

_Finish = types.FinishReason
_STOPS: Final[dict[types.FinishReason, StopReason]] = {
    _Finish.STOP: "stop",
    _Finish.MAX_TOKENS: "length",
    _Finish.SAFETY: "content_filter",
    _Finish.RECITATION: "content_filter",
    _Finish.BLOCKLIST: "content_filter",
    _Finish.PROHIBITED_CONTENT: "content_filter",
    _Finish.SPII: "content_filter",
    _Finish.IMAGE_SAFETY: "content_filter",
    _Finish.IMAGE_PROHIBITED_CONTENT: "content_filter",
    _Finish.IMAGE_RECITATION: "content_filter",
    _Finish.ESCALATION: "content_filter",
}
"""Any other reason is an error: the model broke off, or its output can't be parsed."""


class ResponseReader:
    """Converts the responses of one answer, one or many, to chunks."""

    __slots__ = ("_calls", "_id", "_media", "_model", "_provider_id", "_stop", "_usage",
                 "_version")  # fmt: skip

    def __init__(self, provider_id: str, model: str, media: MediaStore | None) -> None:
        self._provider_id = provider_id
        self._model = model
        self._media = media
        self._calls = 0
        self._id = ""
        self._stop: StopReason | None = None
        self._usage: types.GenerateContentResponseUsageMetadata | None = None
        self._version = ""

    def read(self, response: types.GenerateContentResponse) -> list[StreamChunk]:
        """Return the chunks of a response; an LlmError says that the prompt was blocked."""
        chunks: list[StreamChunk] = []
        self._id = self._id or response.response_id or ""
        self._version = response.model_version or self._version
        if response.usage_metadata is not None:
            if self._usage is None:
                # Each response has new counts. The first are sent, in case the stream breaks; the
                # last, with the end.
                chunks.append(UsageUpdate(_usage(response.usage_metadata)))
            self._usage = response.usage_metadata
        if response.candidates:
            candidate = response.candidates[0]
            if candidate.content is not None:
                for part in candidate.content.parts or ():
                    self._part(part, chunks)
            if candidate.finish_reason is not None:
                self._stop = _STOPS.get(candidate.finish_reason, "error")
        elif response.prompt_feedback is not None and response.prompt_feedback.block_reason:
            raise self._failed(
                f"the prompt was blocked: {response.prompt_feedback.block_reason.value}",
                "content_filter",
            )
        return chunks

    def end(self) -> StreamEnd:
        """Return the last chunk, after all responses.

        BrokenAnswer says that the stream was cut off.
        """
        if self._stop is None:
            raise BrokenAnswer("the stream was cut before the answer was complete.")
        stop = "tool_use" if self._stop == "stop" and self._calls else self._stop
        usage = None if self._usage is None else _usage(self._usage)
        return StreamEnd(stop, usage, self._version)

    def _part(self, part: types.Part, chunks: list[StreamChunk]) -> None:
        signed = part.thought_signature
        opaque = base64.b64encode(signed).decode("ascii") if signed else ""
        if part.thought:
            if part.text or opaque:
                chunks.append(ReasoningDelta(part.text or "", opaque))
            return
        if opaque:
            chunks.append(ReasoningDelta("", opaque))
        if part.text:
            chunks.append(TextDelta(part.text))
        elif part.function_call is not None:
            call = part.function_call
            index, self._calls = self._calls, self._calls + 1
            call_id = call.id or f"{MADE}{self._answer_id()}-{index}"
            chunks.append(ToolCallStart(index, call_id, call.name or ""))
            chunks.append(ToolCallDelta(index, json.dumps(call.args or {}, ensure_ascii=False)))
        elif part.inline_data is not None and part.inline_data.data:
            chunks.append(self._medium(part.inline_data, part.inline_data.data))

    def _answer_id(self) -> str:
        """Return an id that makes the ids of this answer's calls unique in the conversation."""
        self._id = self._id or uuid.uuid4().hex
        return self._id

    def _medium(self, blob: types.Blob, content: bytes) -> MediaChunk:
        if self._media is None:
            raise self._failed(
                "it made media, and the call brings no store for them", "bad_request"
            )
        kind = blob.mime_type or "application/octet-stream"
        return MediaChunk(self._media.put(content, kind))

    def _failed(self, why: str, kind: str) -> LlmError:
        return LlmError(
            f"{self._provider_id} gave no answer: {why}.",
            kind=kind,
            provider=self._provider_id,
            model=self._model,
        )


async def read_response(
    reader: ResponseReader, response: types.GenerateContentResponse
) -> list[StreamChunk]:
    """Read a response, on a worker thread if media of it have to be stored."""
    made = any(
        part.inline_data is not None
        for candidate in response.candidates or ()
        if candidate.content is not None
        for part in candidate.content.parts or ()
    )
    return await anyio.to_thread.run_sync(reader.read, response) if made else reader.read(response)


def _usage(counted: types.GenerateContentResponseUsageMetadata) -> Usage:
    """Return the usage: prompt tokens include cached ones, candidates don't include thoughts."""
    cached = max(0, counted.cached_content_token_count or 0)
    return Usage(
        max(0, (counted.prompt_token_count or 0) - cached)
        + max(0, counted.tool_use_prompt_token_count or 0),
        max(0, counted.candidates_token_count or 0),
        cached,
        0,
        max(0, counted.thoughts_token_count or 0),
    )
