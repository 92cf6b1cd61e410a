"""A knowledge item as a resource: its URI, its media type and its content.

Its text is the resource, or a file beside it that it names with its SHA-256: an image, say, which
can hold no signature itself.

Source: docs/how-to/serve-mcp.md#knowledge-as-resources.
"""

import base64
import mimetypes
import re
from pathlib import Path
from typing import Final

from mcp_types import BlobResourceContents, Resource, TextResourceContents

from ryecore.actions.fetch import FetchedItem
from ryecore.errors import ContentChanged, IntegrityError, MetadataError
from ryecore.frozen import frozen
from ryecore.items.description import knowledge_metadata, knowledge_text
from ryecore.items.files import leads_out
from ryecore.lillux.digests import read_digest

__all__ = [
    "SCHEME",
    "KnowledgeResource",
    "contents_of",
    "default_uri",
    "read_contents",
    "resource_of",
]

SCHEME: Final = "rye"
_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*:[^\s]{1,1000}")
_MIME_TYPE: Final = re.compile(r"[\w.+-]+/[\w.+-]+")
_MAX_FILE_BYTES: Final = 16 * 1024 * 1024
_TEXT_TYPES: Final = frozenset(
    {"application/json", "application/yaml", "application/xml", "image/svg+xml"}
)


@frozen
class KnowledgeResource:
    """What a verified knowledge item declares of the resource that it is.

    `file` and `sha256` are those of the file beside it that is the content, if there is one.
    """

    uri: str
    mime_type: str
    file: str | None = None
    sha256: str = ""


def default_uri(label: str, item_id: str) -> str:
    """Return the URI of an item that declares none."""
    return f"{SCHEME}://{label}/knowledge/{item_id}"


def declared_resource(found: FetchedItem, uri: str) -> KnowledgeResource:
    """Return what an item declares, by its verified content.

    Args:
        found: The item.
        uri: Its URI, where it declares none.

    Raises:
        MetadataError: It declares what can't be.
    """
    source = found.item.source
    declared = knowledge_metadata(found.item.content, source.relative)
    own = declared.get("uri")
    if own is not None and not (_is_text(own, _URI) and not str(own).startswith(f"{SCHEME}:")):
        raise _misdeclared(found, f"uri isn't a URI of another scheme than {SCHEME}")
    mime_type = declared.get("mime_type")
    if mime_type is not None and not _is_text(mime_type, _MIME_TYPE):
        raise _misdeclared(found, "mime_type isn't a media type")
    file, digest = declared.get("file"), declared.get("sha256")
    if file is None:
        kind = "text/markdown" if source.path.suffix == ".md" else "application/yaml"
        return KnowledgeResource(str(own or uri), str(mime_type or kind))
    if not _is_text(file, re.compile(r"(?!/)[^\0\\]+")) or ".." in Path(str(file)).parts:
        raise _misdeclared(found, "file isn't a path below the item's folder")
    if not _is_text(digest, re.compile(r"[0-9a-f]{64}")):
        raise _misdeclared(found, "sha256 isn't the SHA-256 of the file, in hex")
    guessed = mimetypes.guess_type(str(file))[0] or "application/octet-stream"
    return KnowledgeResource(str(own or uri), str(mime_type or guessed), str(file), str(digest))


def resource_of(found: FetchedItem, name: str, uri: str) -> Resource:
    """Return an item as an entry of a list of resources.

    Raises:
        MetadataError: It declares what can't be.
    """
    declared, said = declared_resource(found, uri), found.description
    return Resource(
        uri=declared.uri,
        name=name,
        title=said.title,
        description=said.description or None,
        mime_type=declared.mime_type,
    )


def read_contents(found: FetchedItem, uri: str) -> TextResourceContents | BlobResourceContents:
    """Return the content of an item's resource, verified; it may read the file beside it.

    Raises:
        IntegrityError: The file isn't the one that the signed item names.
        MetadataError: The item declares what can't be.
    """
    declared = declared_resource(found, uri)
    if declared.file is None:
        text = knowledge_text(found.item.content.decode("utf-8", errors="replace"))
        return TextResourceContents(uri=declared.uri, mime_type=declared.mime_type, text=text)
    return contents_of(_file(found, declared), declared.uri, declared.mime_type)


def contents_of(
    content: bytes, uri: str, mime_type: str
) -> TextResourceContents | BlobResourceContents:
    """Return bytes as text where their media type is one of text, else as base64."""
    if mime_type.startswith("text/") or mime_type in _TEXT_TYPES:
        try:
            return TextResourceContents(uri=uri, mime_type=mime_type, text=content.decode())
        except UnicodeDecodeError:
            pass
    blob = base64.b64encode(content).decode()
    return BlobResourceContents(uri=uri, mime_type=mime_type, blob=blob)


def _file(found: FetchedItem, declared: KnowledgeResource) -> bytes:
    source = found.item.source
    path = source.path.parent / str(declared.file)
    if leads_out(path, source.kind_folder):
        raise IntegrityError(
            f"{path} is a link that leaves its folder.",
            next_step="Put the file itself there.",
            path=path,
        )
    try:
        content, digest = read_digest(str(path), max_bytes=_MAX_FILE_BYTES)
    except OSError as problem:
        raise IntegrityError(
            f"{path}, which {source.ref} names, can't be read: {problem.strerror or problem}.",
            next_step="Put the file there, of at most 16 MiB.",
            path=path,
        ) from None
    if digest != declared.sha256:
        raise ContentChanged(
            f"{path} isn't the file that {source.ref} names: its SHA-256 is {digest[:16]}….",
            next_step="Put the right file there, or name its SHA-256 and sign the item again.",
            path=path,
        )
    return content


def _is_text(value: object, form: re.Pattern[str]) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


def _misdeclared(found: FetchedItem, problem: str) -> MetadataError:
    path = found.path
    return MetadataError(
        f"{path}: {problem}.", next_step="Correct it and sign it again.", path=path, line=None
    )
