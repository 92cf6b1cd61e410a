# rye:signed:2026-11-28T17:20:55Z:befa4cb948dd77cee3718ee20f5f1d840d6d4035c4f95465f845c9f89fa6f3c5:bfL_rsq14HJ9hvGdfHlaafMYs-ALc5S1j_yuSV2zg8ednIWRfx3nyqXe0lylV0Cah5vrpmbqfz-ukDs4zudmBQ:a50d0ff255b90b74
"""Read a part of a text file."""

from __future__ import annotations

from answers import Refused, flag, number, reported, text
from confined import locate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedReader

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__hints__ = {"read_only": True}
__tool_description__ = (
    "Read lines of a text file in the project; a long file is read in parts by offset and limit."
)

CONFIG_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 4096,
            "description": "The file, relative to the project or absolute inside it.",
        },
        "offset": {
            "type": "integer",
            "minimum": 1,
            "default": 1,
            "description": "The first line to read, counted from 1.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 20000,
            "default": 2000,
            "description": "How many lines to read at most.",
        },
        "line_numbers": {
            "type": "boolean",
            "default": False,
            "description": "Whether each line starts with its number and a tab.",
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}

CONFIG_RESOLVE = {"path": "file-system/access.yaml", "mode": "deep_merge", "signed": True}

CONTENT_BYTES = 100 * 1024
LINE_CHARACTERS = 2000
CHUNK = 64 * 1024  # a bigger one costs more: each would be mapped afresh

# How known binary formats begin; a NUL byte near the start gives away the others.
FORMATS = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or Office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (b"\x7fELF", "an ELF program or library"),
    (b"SQLite format 3\0", "a SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


@reported
def execute(params: dict[str, object], project_path: str) -> dict[str, object]:
    """Read a part of a text file; see CONFIG_SCHEMA."""
    place = locate(text(params, "path"), project_path, params)
    offset, limit = number(params, "offset", 1), number(params, "limit", 2000)
    numbered = flag(params, "line_numbers", False)
    if not offset or not limit:
        raise Refused("Give offset and limit as 1 or more.")
    descriptor, status = place.open_file()
    with open(descriptor, "rb") as file:
        _refuse_binary(file.read(8192), place.shown, status.st_size)
        file.seek(0)
        skipped = _skip_lines(file, offset - 1)
        if offset > 1 and not file.peek(1):
            raise Refused(f"{place.shown!r} has only {skipped} lines; give a smaller offset.")
        taken = Lines(offset, numbered)
        taken.take(file, limit)
        more = _count_lines(file)
    last = taken.next_line - 1
    return {
        "success": True,
        "path": place.shown,
        "content": "".join(taken.lines),
        "first_line": offset,
        "last_line": last,
        "total_lines": last + more,
        "truncated": bool(more or taken.cut),
        "size_bytes": status.st_size,
        "notes": taken.notes(more),
    }


class Lines:
    """The lines that are read, and what had to be changed in them."""

    def __init__(self, first_line: int, numbered: bool) -> None:
        self.lines: list[str] = []
        self.next_line = first_line
        self.cut: list[int] = []
        self.replaced: list[int] = []
        self._numbered = numbered

    def take(self, file: BufferedReader, limit: int) -> None:
        """Read lines until the limit, the bound of the content, or the file's end."""
        room = CONTENT_BYTES
        while len(self.lines) < limit:
            start = file.tell()
            piece = file.readline(4 * LINE_CHARACTERS + 2)
            if not piece:
                return
            line, cut, replaced = _decoded(piece)
            if self._numbered:
                line = f"{self.next_line:>6}\t{line}"
            room -= len(line.encode())
            if room < 0:
                file.seek(start)
                return
            while piece and not piece.endswith(b"\n"):
                piece = file.readline(CHUNK)
                cut = cut or bool(piece)
            if cut and piece:
                line += "\n"
            self.lines.append(line)
            if cut:
                self.cut.append(self.next_line)
            if replaced:
                self.replaced.append(self.next_line)
            self.next_line += 1

    def notes(self, more: int) -> list[str]:
        """What the reader should know, in sentences."""
        notes = []
        if more:
            notes.append(f"{more} more lines follow; read on with offset {self.next_line}.")
        if self.cut:
            notes.append(f"Cut at {LINE_CHARACTERS} characters: {_named(self.cut)}.")
        if self.replaced:
            notes.append(
                f"Bytes that aren't UTF-8 are shown as \N{REPLACEMENT CHARACTER} in: "
                f"{_named(self.replaced)}."
            )
        return notes


def _named(lines: list[int]) -> str:
    shown = ", ".join(str(line) for line in lines[:10])
    rest = f" and {len(lines) - 10} more" if len(lines) > 10 else ""
    return f"line{'s' if len(lines) > 1 else ''} {shown}{rest}"


def _decoded(piece: bytes) -> tuple[str, bool, bool]:
    """A line's text, whether it was cut, and whether bytes were replaced in it."""
    line = piece.decode("utf-8", "replace")
    cut = len(line.rstrip("\r\n")) > LINE_CHARACTERS
    if cut:
        line = line[:LINE_CHARACTERS]
    return line, cut, not piece.startswith(line.encode())


def _refuse_binary(head: bytes, shown: str, size: int) -> None:
    for magic, name in FORMATS:
        if head.startswith(magic):
            guess = name
            break
    else:
        if b"\0" not in head:
            return
        guess = "binary data"
    raise Refused(
        f"{shown!r} looks like {guess} ({size} bytes), not like text; "
        "use a program that understands it."
    )


def _skip_lines(file: BufferedReader, count: int) -> int:
    """Skip that many lines, or all there are; answers how many."""
    skipped, unfinished = 0, False
    while skipped < count:
        chunk = file.read(CHUNK)
        if not chunk:
            break
        found = chunk.count(b"\n")
        if skipped + found < count:
            skipped += found
            unfinished = not chunk.endswith(b"\n")
            continue
        end = 0
        for _ in range(count - skipped):
            end = chunk.index(b"\n", end) + 1
        file.seek(end - len(chunk), 1)
        return count
    return skipped + unfinished


def _count_lines(file: BufferedReader) -> int:
    """The number of lines from here to the end, which is read in pieces."""
    count, last = 0, b"\n"
    while chunk := file.read(CHUNK):
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return count + (last != b"\n")
