"""The signature line: its form, where it stands, what it covers. Bytes in, values out.

    rye:signed:TIMESTAMP:CONTENT_HASH:SIGNATURE:FINGERPRINT[|provider@user]

The hash covers the raw bytes of the whole file minus exactly this line and its line end. What the
key signs is the item's identity as well, so a file that was moved, renamed or back-dated fails.
"""

import binascii
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from ryecore.frozen import frozen
from ryecore.lillux.digests import sha256_hex
from ryecore.lillux.keys import PublicKey, SigningKey

__all__ = [
    "COMMENT_FORMS",
    "SIDECAR",
    "CommentForm",
    "FileTypesReader",
    "Signature",
    "SplitContent",
    "comment_form",
    "insert_signature",
    "make_signature",
    "parse_payload",
    "signature_payload",
    "split_content",
    "utc_now",
]

_PAYLOAD: Final = re.compile(
    r"rye:signed:"
    r"(?P<timestamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ):"
    r"(?P<hash>[0-9a-f]{64}):"
    r"(?P<signature>[A-Za-z0-9_-]{86}):"
    r"(?P<fingerprint>[0-9a-f]{16})"
    r"(?:\|(?P<provenance>[A-Za-z0-9_-]+@[A-Za-z0-9_-]+))?",
    re.ASCII,
)
_VALUE_CHARS: Final = 86  # of 64 bytes, without padding
_MARK: Final = b"rye:signed:"
SIDECAR: Final = ".sig"
"""What is added to the name of a file that can't hold a comment, for that of its signature."""


@frozen
class CommentForm:
    """How a comment of one line is written in a kind of file."""

    prefix: str
    suffix: str = ""

    @classmethod
    def of(cls, token: str) -> "CommentForm":
        """Return the form of a token: `#`, `//`, `--`, `;`, or `<!--` with its end."""
        return cls("<!-- ", " -->") if token == "<!--" else cls(token + " ")


FileTypesReader = Callable[[], Mapping[str, CommentForm]]
"""Reads the comment forms that signed runtimes add, by extension."""

_HASH, _SLASHES, _ANGLE = CommentForm.of("#"), CommentForm.of("//"), CommentForm.of("<!--")
COMMENT_FORMS: Final[Mapping[str, CommentForm]] = {
    **dict.fromkeys((".py", ".yaml", ".yml", ".sh", ".toml"), _HASH),
    **dict.fromkeys((".js", ".ts", ".mjs", ".cjs"), _SLASHES),
    ".md": _ANGLE,
}


def comment_form(
    extension: str, file_types: Mapping[str, CommentForm] | None = None
) -> CommentForm | None:
    """Return the comment form of a file by its extension with the dot, those of runtimes included.

    A file without comments has None: its signature is a sidecar, `NAME.sig`.
    """
    return COMMENT_FORMS.get(extension) or (file_types or {}).get(extension)


@frozen
class Signature:
    """The content of a signature line.

    Attributes:
        provenance: `provider@user`, where a registry distributed the item.
    """

    timestamp: str
    content_hash: str
    value: bytes
    fingerprint: str
    provenance: str | None = None

    @property
    def payload(self) -> str:
        """The payload of the signature line."""
        value = urlsafe_b64encode(self.value)[:_VALUE_CHARS].decode()
        text = signature_payload(self.timestamp, self.content_hash, value, self.fingerprint)
        return f"{text}|{self.provenance}" if self.provenance else text

    def message(self, kind: str, path: str) -> bytes:
        """Return the message that the key signs: identity, time, hash and provenance.

        Source: decision 4. A path outside plain ASCII is percent-encoded, so that
        it can neither hold a line end nor be two spellings of one name.
        """
        return "\n".join(
            (
                "rye-item-v2",
                f"{kind}:{quote(path, safe='/', errors='surrogateescape')}",
                self.timestamp,
                self.content_hash,
                self.provenance or "",
            )
        ).encode("ascii")

    def holds(self, kind: str, path: str, key: PublicKey) -> bool:
        """Return whether this key signed this content at this place and time."""
        return key.verifies(self.value, self.message(kind, path))


def signature_payload(timestamp: str, content_hash: str, value: str, fingerprint: str) -> str:
    """Return the payload of a signature, whose value is in base64, without provenance."""
    return f"rye:signed:{timestamp}:{content_hash}:{value}:{fingerprint}"


def utc_now() -> str:
    """Return the time of a signature made now: UTC seconds."""
    return _utc(int(time.time()))


@lru_cache(maxsize=1)  # many signatures are made within a second
def _utc(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


def parse_payload(text: str) -> Signature | None:
    """Parse a payload; return None for text of another form, or with anything around it."""
    found = _PAYLOAD.fullmatch(text)
    if found is None:
        return None
    encoded = found["signature"]
    try:
        value = urlsafe_b64decode(encoded + "==")
    except (binascii.Error, ValueError):
        return None
    if urlsafe_b64encode(value).decode().rstrip("=") != encoded:
        return None  # a signature has one spelling
    return Signature(
        found["timestamp"], found["hash"], value, found["fingerprint"], found["provenance"]
    )


def make_signature(
    content_hash: str,
    kind: str,
    path: str,
    key: SigningKey,
    timestamp: str,
    provenance: str | None = None,
) -> Signature:
    """Sign an item's identity and content hash."""
    unsigned = Signature(timestamp, content_hash, b"", key.public.fingerprint, provenance)
    value = key.sign(unsigned.message(kind, path))
    return Signature(timestamp, content_hash, value, key.public.fingerprint, provenance)


@frozen
class SplitContent:
    """A file's bytes, split into its signature line and the rest.

    A `#!` line stands before it. `line` is its text without comment marks; None where there is
    none.
    """

    before: bytes
    line: str | None
    after: bytes

    @property
    def content_hash(self) -> str:
        """SHA-256 of everything but the signature line, 64 hex digits."""
        return sha256_hex(self.before, self.after)


def split_content(content: bytes, form: CommentForm | None) -> SplitContent:
    """Split a file into its signature line and the rest. A sidecar has no comment form.

    `line` is None where the place of the signature holds something else.
    """
    start = 0
    if form is None:
        return SplitContent(content, None, b"")
    if content.startswith(b"#!"):
        start = content.find(b"\n") + 1
        if start == 0:
            return SplitContent(content, None, b"")
    prefix = form.prefix.encode()
    if not content.startswith(prefix + _MARK, start):
        return SplitContent(content[:start], None, content[start:])
    end = content.find(b"\n", start)
    line = content[start:] if end < 0 else content[start:end].removesuffix(b"\r")
    after = b"" if end < 0 else content[end + 1 :]
    text = line.decode("utf-8", errors="replace")[len(form.prefix) :]
    if form.suffix:
        # A line that doesn't end in the suffix keeps its text, and so parses as malformed.
        text = text.removesuffix(form.suffix) if text.endswith(form.suffix) else text + "\n"
    return SplitContent(content[:start], text, after)


def insert_signature(parts: SplitContent, signature: Signature, form: CommentForm) -> bytes:
    """Return the file with this signature line, in place of the one it had."""
    newline = (
        "\r\n"
        if (parts.before or parts.after.partition(b"\n")[0] + b"\n").endswith(b"\r\n")
        else "\n"
    )
    line = f"{form.prefix}{signature.payload}{form.suffix}{newline}"
    return parts.before + line.encode() + parts.after
