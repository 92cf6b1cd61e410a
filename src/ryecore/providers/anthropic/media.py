"""Media in requests: images, PDFs and plain text."""

import base64
from typing import Any

from ryecore.llm import LlmError, MediaPart, MediaStore

__all__ = ["write_medium"]


def write_medium(
    part: MediaPart, media: MediaStore | None, provider_id: str, model: str
) -> dict[str, Any]:
    """Return a medium as a block of a message.

    Raises:
        LlmError: The API doesn't take such media, or the call has no store.
    """
    kind = part.media_type
    if media is None:
        why = "the call brings no media store to read it from"
        raise _unsendable(kind, why, provider_id, model)
    content = media.read(part)
    if kind == "text/plain":
        text = content.decode("utf-8", "replace")
        source = {"type": "text", "media_type": kind, "data": text}
    elif kind == "application/pdf" or kind.startswith("image/"):
        data = base64.b64encode(content).decode("ascii")
        source = {"type": "base64", "media_type": kind, "data": data}
    else:
        raise _unsendable(kind, "the API takes images, PDF and plain text", provider_id, model)
    if kind.startswith("image/"):
        return {"type": "image", "source": source}
    title = {"title": part.name} if part.name else {}
    return {"type": "document", "source": source, **title}


def _unsendable(kind: str, why: str, provider_id: str, model: str) -> LlmError:
    return LlmError(
        f"A medium of type {kind} can't be sent to {model}: {why}.",
        kind="bad_request",
        provider=provider_id,
        model=model,
    )
