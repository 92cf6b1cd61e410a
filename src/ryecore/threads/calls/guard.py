"""The result guard, which shortens a tool's result for a thread's model and stores the whole.

A shortened JSON result is still JSON, so that a model can read it as data.

Source: docs/design/threads.md#turn-loop; decision 48.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final

import anyio.to_thread
from attrs import field, validators

from ryecore.errors import StoreError, ToolExecutionError
from ryecore.frozen import frozen
from ryecore.state.store import ThreadStore
from ryecore.strict_json import read_json
from ryecore.tools.context import ToolContext
from ryecore.tools.definition import ToolDef
from ryecore.tools.reading import read_result_tool
from ryecore.tools.results import preview
from ryecore.tools.store import MemoryResultStore, ResultStore, digest_of, handle_of

__all__ = [
    "READ_ARTIFACT",
    "ArtifactStore",
    "GuardLimits",
    "ResultGuard",
    "artifact_reader",
    "cut_down",
    "strip_envelope",
]

READ_ARTIFACT: Final = "read_artifact"
"""The tool that reads stored results."""

_ENVELOPE: Final = frozenset({
    "chain", "chain_elements", "linked_items", "validated_pairs", "metadata", "trace", "path",
    "destination_path", "source", "space", "integrity", "key_fp", "resolved_env_keys", "shadows",
    "shadowed_by", "pid",
})  # fmt: skip
_SIGNATURE: Final = "rye:signed:"
_FIRST: Final = ("status", "success", "error", "warnings")
_LONGER: Final = frozenset({"content", "text", "stdout", "error", "your_directions"})
_MAX_KEY: Final = 80
_MAX_NUMBER: Final = 40
_PREVIEW_NOTE: Final = 220
_LEAST: Final = validators.and_(validators.instance_of(int), validators.ge(600))


@frozen
class GuardLimits:
    """The bounds of a result for a model, in characters.

    `tight_chars` holds from `tight_from`, the share of the model's context that counts as nearly
    full; else `read_artifact` returns `read_chars`. A repeated result up to `repeat_chars` is shown
    again.
    """

    chars: int = field(default=2_400, validator=_LEAST)
    tight_chars: int = field(default=1_200, validator=_LEAST)
    tight_from: float = 0.75
    repeat_chars: int = 300
    read_chars: int = field(default=8_000, validator=_LEAST)


_DEFAULTS: Final = GuardLimits()


class ArtifactStore:
    """The store of a thread's own results; it also reads those of the threads that it continues."""

    def __init__(self, store: ThreadStore, thread_id: str, earlier: Iterable[str] = ()) -> None:
        self._store = store
        self._thread_id = thread_id
        self._readable = (thread_id, *earlier)

    def put(self, content: bytes) -> str:
        """Store content, and return its handle."""
        return handle_of(self._store.put_artifact(self._thread_id, content))

    def read(self, handle: str) -> bytes:
        """Read the content of a handle."""
        problem, digest = StoreError("No result has this handle."), digest_of(handle)
        for thread_id in self._readable:
            try:
                return self._store.get_artifact(thread_id, digest)
            except StoreError as error:
                problem = error
        raise problem


class ResultGuard:
    """The guard that shortens results for the model of one thread. It is `ToolContext.present`.

    The thread sets `context_share`, how full the model's context is (0 to 1), after each turn.
    """

    def __init__(self, store: ResultStore, limits: GuardLimits | None = None) -> None:
        self._store = store
        self._limits = limits or _DEFAULTS
        self._seen: dict[bytes, str] = {}
        self.context_share = 0.0

    @property
    def max_chars(self) -> int:
        """The most characters of a result at this moment."""
        limits = self._limits
        return limits.chars if self.context_share <= limits.tight_from else limits.tight_chars

    @cached_property
    def reader(self) -> ToolDef:
        """The tool `read_artifact` for the results that this guard has stored."""
        return read_result_tool(
            self._store,
            name=READ_ARTIFACT,
            max_chars=self._limits.read_chars,
            bound=self._read_bound,
        )

    async def __call__(self, tool_name: str, call_id: str, text: str) -> tuple[str, str | None]:
        """Return a result as the model sees it, and the handle of the whole if it is shortened."""
        size = len(text)
        if size <= self._limits.repeat_chars or tool_name == READ_ARTIFACT:
            return text, None
        digest = hashlib.sha256(text.encode()).digest()
        earlier = self._seen.get(digest)
        if earlier is not None:
            handle = await anyio.to_thread.run_sync(self._keep, text)
            if handle is not None:
                return _identical(text, earlier, handle), handle
        if size <= self.max_chars:
            handle, shown = None, text
        else:
            handle, shown = await anyio.to_thread.run_sync(self._cut, text, self.max_chars)
        self._seen.setdefault(digest, call_id)
        return shown, handle

    def _read_bound(self) -> int:
        limits = self._limits
        is_tight = self.context_share > limits.tight_from
        return limits.tight_chars if is_tight else limits.read_chars

    def _cut(self, text: str, max_chars: int) -> tuple[str | None, str]:
        handle = self._keep(text)
        return handle, cut_down(text, max_chars, handle)

    def _keep(self, text: str) -> str | None:
        """Store a whole result, and return its handle; None where it can't be stored."""
        try:
            return self._store.put(text.encode())
        except Exception:  # a full disk, or a failure of the host's store
            return None


@lru_cache(maxsize=1)
def artifact_reader() -> ToolDef:
    """Return the tool `read_artifact` of all threads: each call reads what its own thread stored.

    It is for the palette of a thread that has tools.
    """
    shown = ResultGuard(MemoryResultStore()).reader
    return ToolDef(
        name=shown.name,
        description=shown.description,
        parameters=shown.parameters,
        run=_read_artifact,
        parallel_safe=True,
        read_only=True,
        source=shown.source,
    )


async def _read_artifact(arguments: Mapping[str, Any], ctx: ToolContext) -> object:
    if not isinstance(ctx.present, ResultGuard):
        raise ToolExecutionError("Nothing is stored here.", tool_name=READ_ARTIFACT)
    return await ctx.present.reader.run(arguments, ctx)


def strip_envelope(document: Mapping[str, object]) -> dict[str, object]:
    """Remove from a response object what a model doesn't need: chain, paths, signatures.

    Source: docs/design/threads.md#tool-results.
    """
    shown = {name: value for name, value in document.items() if name not in _ENVELOPE}
    content = shown.get("content")
    if isinstance(content, str) and _SIGNATURE in content:
        lines = content.splitlines(keepends=True)
        shown["content"] = "".join(line for line in lines if _SIGNATURE not in line)
    return shown


def cut_down(text: str, max_chars: int, handle: str | None) -> str:
    """Shorten a result: JSON keeps its structure and stays JSON, other text its head and tail.

    `max_chars` is at least 600. Without a handle, the whole isn't stored.
    """
    if len(text) <= max_chars:
        return text
    value = _json_value(text)
    if value is None:
        return preview(text, max_chars - _PREVIEW_NOTE, handle)
    where = f"Read it with {READ_ARTIFACT}." if handle else "The rest could not be stored."
    about: dict[str, object] = {"_artifact_ref": handle} if handle else {}
    about["_artifact_note"] = f"Shortened from {len(text):,} characters. {where}"
    for level in _LEVELS:
        shown = json.dumps({**level.top(value), **about}, ensure_ascii=False)
        if len(shown) <= max_chars:
            return shown
    return json.dumps(about, ensure_ascii=False)


def _json_value(text: str) -> object:
    """Return the list, mapping or text that a JSON text holds; None for anything else."""
    if text[:1] not in ("{", "[", '"'):
        return None
    try:
        return read_json(text)
    except ValueError:
        return None


def _identical(text: str, call_id: str, handle: str) -> str:
    said = f"Identical to the result of call {call_id}."
    if text[:1] in ("{", "[", '"'):
        return json.dumps({"_artifact_ref": handle, "_artifact_note": said}, ensure_ascii=False)
    return f"{said} The whole is kept as {handle}."


@frozen
class _Level:
    """A level of shortening: the bounds of texts, lists, mappings and nesting.

    `longer` is the bound of a text that is likely the main one.
    """

    chars: int
    longer: int
    items: int
    keys: int
    depth: int

    def top(self, value: object) -> dict[str, object]:
        """Return a whole value, shortened, as a mapping."""
        if isinstance(value, Mapping):
            return self._mapping(value, self.depth)
        return self._mapping({"items" if isinstance(value, list) else "text": value}, self.depth)

    def _mapping(self, value: Mapping[str, object], depth: int) -> dict[str, object]:
        names = [name for name in _FIRST if name in value]
        names += [name for name in value if name not in _FIRST]
        shown: dict[str, object] = {}
        for name in names[: self.keys]:
            one = value[name]
            key = name if len(name) <= _MAX_KEY else f"{name[:_MAX_KEY]}…"
            if isinstance(one, list) and (len(one) > self.items or depth < 1):
                shown.setdefault(f"{key}_count", len(one))
                if depth > 0:
                    first = [self._value(each, "", depth - 1) for each in one[: self.items]]
                    shown.setdefault(f"{key}_preview", first)
            else:
                shown[key] = self._value(one, name, depth - 1)
        if len(names) > self.keys:
            shown.setdefault("_more_keys", len(names) - self.keys)
        return shown

    def _value(self, value: object, name: str, depth: int) -> object:
        if isinstance(value, str):
            most = self.longer if name in _LONGER else self.chars
            return value if len(value) <= most else f"{value[:most]}…"
        if isinstance(value, Mapping):
            return self._mapping(value, depth) if depth >= 0 else {"_keys_count": len(value)}
        if isinstance(value, list):
            if depth < 0 or len(value) > self.items:
                return self._mapping({"items": value}, max(depth, 0))
            return [self._value(one, "", depth - 1) for one in value]
        if isinstance(value, int | float) and len(repr(value)) > _MAX_NUMBER:
            return f"{repr(value)[:_MAX_NUMBER]}…"
        return value


_LEVELS: Final = (
    _Level(200, 500, 3, 40, 5),
    _Level(120, 300, 3, 20, 4),
    _Level(80, 160, 2, 12, 3),
    _Level(40, 80, 1, 8, 2),
    _Level(20, 40, 1, 4, 1),
    _Level(16, 24, 1, 2, 0),
)
