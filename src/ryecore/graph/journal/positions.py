"""Positions and results as objects in the content store, named by their digests.

A position's object holds the state's small values, and names the large ones, each of which is an
object of its own. So the cost of a step depends only on the changes.
"""

import json
import re
import threading
from collections.abc import Mapping
from typing import Any, Final

from ryecore.agent.outcome import NodeOutcome
from ryecore.convert.json_text import make_encoder
from ryecore.convert.strict import ConversionError
from ryecore.errors import StateError, StoreError
from ryecore.graph.schedule import Position, read_failure
from ryecore.state.objects import RunObjects
from ryecore.state.waiting import run_in_thread

__all__ = ["PositionStore"]

_LARGE_VALUE: Final = 2048
_LARGE_RESULT: Final = 16 * 1024
_DEEP: Final = 100
"""The deepest nesting of a record, since a reader may have less stack left."""

_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*"')


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a value of the type {type(value).__name__}")


_encode: Final = make_encoder(default=_plain)


class PositionStore:
    """The store of the positions and large results of one run.

    Values of a state are never changed in place, only replaced: nodes get them from expressions,
    and assign new ones. So a value that is the same object as before is not encoded and written
    again.
    """

    def __init__(self, objects: RunObjects, run_id: str) -> None:
        self._objects = objects
        self._run_id = run_id
        self._known: dict[str, tuple[object, str]] = {}  # by key: the value, and its stored form
        self._last_result: tuple[object, str] = (None, "")

    @property
    def is_durable(self) -> bool:
        """Whether stored states survive a power cut, once `synced` was awaited."""
        return self._objects.is_durable

    def prepare(self) -> None:
        """Prepare for a run that writes; refuse a clone's link in place of the objects."""
        try:
            self._objects.prepare()
        except StoreError as problem:
            raise _unwritten(self._run_id, problem) from problem

    async def stored(self) -> None:
        """Wait until all states so far survive the death of the process."""
        try:
            await self._objects.stored()
        except StoreError as problem:
            raise _unwritten(self._run_id, problem) from problem

    async def synced(self) -> None:
        """Wait until all states so far have the promised durability."""
        try:
            await self._objects.synced()
        except StoreError as problem:
            raise _unwritten(self._run_id, problem) from problem

    def put(self, position: Position) -> str:
        """Store a position with its state of JSON, and return the digest of its object."""
        about = _checked(position.to_dict(), "The output of the run")
        known, kept, parts = self._known, {}, []
        for key, value in position.state.items():
            before = known.get(key)
            if before is None or before[0] is not value:
                before = (value, self._part(key, value))
            kept[key] = before
            parts.append(before[1])
        digest = self._put(f'{{"position":{about},"state":{{{",".join(parts)}}}}}')
        self._known = kept
        self._last_result = (None, "")
        return digest

    def _part(self, key: str, value: object) -> str:
        """Return the JSON for a key of the state in the position's object."""
        text = _checked(value, f"The state's {key!r}")
        if len(text) <= _LARGE_VALUE:
            return f'{_encode(key)}:{{"value":{text}}}'
        last, digest = self._last_result
        if last is not value:
            digest = self._put(text)
        return f'{_encode(key)}:{{"sha256":"{digest}"}}'

    async def get(self, digest: str) -> Position:
        """Return a position by its digest; StoreError where an object is missing or was altered."""
        return await run_in_thread(self._get, digest)

    def _get(self, digest: str) -> Position:
        said = self._value_of(digest)
        try:
            state = {
                key: self._value_of(one["sha256"]) if "sha256" in one else one["value"]
                for key, one in said["state"].items()
            }
            return Position.from_dict(said["position"], state)
        except (LookupError, TypeError, AttributeError, ConversionError):
            raise StoreError(f"The object {digest} isn't the position of a run.") from None

    async def is_whole(self, digest: str) -> bool:
        """Return whether a position and all objects that it names can be read."""
        try:
            await self.get(digest)
        except StoreError:
            return False
        return True

    def outcome_of(self, outcome: NodeOutcome) -> dict[str, object]:
        """Return an outcome's fields in a record: its value, or the digest of a large one."""
        fields, failure = dict(self.result_of(outcome.output)), outcome.failure
        if failure is not None:
            fields |= {"error": failure.message, "code": failure.code}
            if failure.retryable:
                fields["retryable"] = True
            if failure.effect_unknown:
                fields["effect_unknown"] = True
        return fields

    def result_of(self, value: object) -> dict[str, object]:
        """Return a value's field in a record: `result`, or `result_hash` for a large one."""
        text = _checked(value, "The result")
        if len(text) <= _LARGE_RESULT and _depth(text) <= _DEEP:
            return {"result": value}
        digest = self._put(text)
        self._last_result = (value, digest)
        return {"result_hash": digest}

    async def outcome_from(self, fields: Mapping[str, Any]) -> NodeOutcome:
        """Return the outcome in a record that holds the fields of `outcome_of`, and `node`."""
        value = fields.get("result")
        if "result_hash" in fields:
            value = await run_in_thread(self._value_of, fields["result_hash"])
        if fields.get("error") is None:
            return NodeOutcome("completed", value)
        return NodeOutcome("failed", value, failure=read_failure(fields))

    def _value_of(self, digest: object) -> Any:
        if not isinstance(digest, str):
            raise StoreError("An object of the run has no digest.")
        try:
            return _decoded(self._objects.get(digest))
        except ValueError:
            raise StoreError(f"The object {digest} isn't JSON.") from None

    def _put(self, text: str) -> str:
        try:
            return self._objects.put(text.encode("ascii"))
        except StoreError as problem:
            raise _unwritten(self._run_id, problem) from problem


def _unwritten(run_id: str, problem: StoreError) -> StateError:
    return StateError(
        f"The state of {run_id} can't be written: {problem.message}",
        next_step="See that the disk has room; then resume the run.",
    )


def _checked(value: object, what: str) -> str:
    """Return a value as ASCII JSON, or raise an error that names its source."""
    try:
        return _encode(value)
    except RecursionError:
        why = "is nested too deep, or contains itself"
    except ValueError:
        why = "holds a number that JSON lacks: NaN, an infinity, or one of thousands of digits"
    except TypeError as problem:
        why = f"holds what JSON lacks: {problem}"
    raise StateError(
        f"{what} {why}, so it can't be stored.",
        next_step="Assign only texts, numbers, booleans, null, lists, and mappings with text keys.",
    )


def _depth(text: str) -> int:
    """Return the nesting depth of JSON; 0 where it is surely small."""
    if text.count("[") + text.count("{") <= _DEEP:
        return 0
    depth = deepest = 0
    for char in _STRINGS.sub("", text):
        if char in "[{":
            depth += 1
            deepest = max(depth, deepest)
        elif char in "]}":
            depth -= 1
    return deepest


def _decoded(content: bytes) -> Any:
    """Decode JSON of any depth that could be written, however little stack is left."""
    try:
        return json.loads(content)
    except RecursionError:
        found: list[Any] = []
        reader = threading.Thread(target=lambda: found.append(json.loads(content)))
        reader.start()
        reader.join()
        if not found:
            raise ValueError("it is nested too deep") from None
        return found[0]
