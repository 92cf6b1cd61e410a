"""The documents that a caller and a node exchange, and their bounds.

Source: docs/design/remote.md#models; decisions 63 to 75.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar

from ryecore.convert.json_text import make_encoder
from ryecore.convert.strict import RECORDS, WIRE, ConversionError, Format, make_converter
from ryecore.frozen import frozen
from ryecore.strict_json import FINITE_DECODER

__all__ = [
    "MAX_BODY_BYTES",
    "MAX_DEPTH",
    "MAX_PARAMETER_BYTES",
    "MAX_REPORT_BYTES",
    "MAX_RESULT_DEPTH",
    "MAX_SNAPSHOT_BYTES",
    "MAX_VALUES",
    "MAX_WAIT_S",
    "PROTOCOL",
    "CancelBody",
    "Ceiling",
    "ExecuteBody",
    "Identity",
    "Missing",
    "NodeStatus",
    "Problem",
    "ProblemType",
    "RunState",
    "RunStatus",
    "SnapshotAnswer",
    "StoredAnswer",
    "decode_answer",
    "decode_request",
    "has_too_many_values",
    "is_nested_too_deeply",
    "is_thread_id",
    "read_answer",
    "read_body",
]

T = TypeVar("T")

PROTOCOL: Final = 1
MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""The largest body of pieces."""

MAX_PARAMETER_BYTES: Final = 16 * 1024 * 1024
MAX_SNAPSHOT_BYTES: Final = 16 * 1024 * 1024
MAX_REPORT_BYTES: Final = 24 * 1024 * 1024
MAX_WAIT_S: Final = 30.0
"""The longest time that a node holds an answer back until a run has ended, in seconds."""

MAX_DEPTH: Final = 256
"""How deep a document may be nested: less than what any reader or writer of JSON here can take."""

MAX_VALUES: Final = 2_000_000
"""How many values a document may hold: parsed, a small one takes many times its bytes."""

MAX_RESULT_DEPTH: Final = MAX_DEPTH - 2
"""How deep a result may be nested: it is part of a report, which is part of an answer."""

_text: Final = make_encoder(ascii_only=False)
_BRIEF: Final = 1000
_BODIES: Final = Format(
    lambda every: make_converter(forbid_unknown_keys=True, finds_every_problem=every),
    finds_every_problem=False,
)
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_THREAD_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,254}", re.ASCII)

RunStatus = Literal["running", "completed", "error", "cancelled", "killed"]
ProblemType = Literal[
    "unauthorized", "clock", "replayed", "forbidden", "not_found", "snapshot_missing", "version",
    "other_request", "too_large", "invalid", "too_many_runs", "busy", "no_room", "failed",
]  # fmt: skip


def is_thread_id(text: str) -> bool:
    """Return whether a text can be the id of a run.

    No part of it is empty or begins with a dot, and the last one isn't a request about a run.
    """
    parts = text.split("/")
    return (
        _THREAD_ID.fullmatch(text) is not None
        and all(part and not part.startswith(".") for part in parts)
        and not (len(parts) > 1 and parts[-1] in ("events", "cancel"))
    )


@frozen
class Identity:
    """A node's keys and versions.

    Attributes:
        node_key: Its public key in PEM.
        box_key: Its public box key, in base64.
        protocol: The version of the protocol.
        ryecore: The version of ryecore.
    """

    node_key: str
    box_key: str
    protocol: int
    ryecore: str


@frozen
class Missing:
    """An object that a node lacks, and the length of its beginning that the node has."""

    sha256: str
    have_bytes: int


@frozen
class SnapshotAnswer:
    """The answer to a snapshot: its id, and the objects that are missing."""

    snapshot: str
    missing: tuple[Missing, ...]


@frozen
class StoredAnswer:
    """The answer to pieces: the objects that are complete now, and those that aren't."""

    stored: tuple[str, ...]
    partial: tuple[Missing, ...]


@frozen
class Ceiling:
    """The most that a run may spend: money in units of 1e-8 USD, and tokens."""

    spend_microcents: int
    tokens: int


@frozen
class ExecuteBody:
    """A request to run an item on a node.

    Attributes:
        thread_id: The caller's id of the run; a repeated request finds the first one's run.
        item_id: The item, as a canonical ref.
        parameters: A tool's parameters, or a directive's inputs.
        thread: `inline` for a tool, `fork` for a directive.
        snapshot: The id of the snapshot that it runs in.
        ryecore: The caller's version of ryecore.
        model: A directive's model, as for a local call.
        limits: A directive's or a graph's limits, as for a local call.
        timeout_s: A tool's or a graph's timeout, in seconds.
        deadline_s: The seconds after which the run is cancelled; None for no bound.
        wait_s: How long the node may wait for the end before it answers, in seconds.
        capabilities: The capabilities of who calls; None for the caller's host.
        ceiling: The most that it may spend; None for a tool.
        envelope: Secrets sealed for the node's box key, in base64; None for none.
        collect: Whether to report and keep the project files that the run changed.
    """

    thread_id: str
    item_id: str
    parameters: Mapping[str, Any]
    thread: Literal["inline", "fork"]
    snapshot: str
    ryecore: str
    model: str | None = None
    limits: Mapping[str, Any] | None = None
    timeout_s: float | None = None
    deadline_s: float | None = None
    wait_s: float = 0.0
    capabilities: tuple[str, ...] | None = None
    ceiling: Ceiling | None = None
    envelope: str | None = None
    collect: bool = False


@frozen
class CancelBody:
    """A request to stop a run; with `kill` its processes are killed after the grace, in seconds."""

    kill: bool = False
    grace_s: float = 3.0


@frozen
class RunState:
    """The state of a run.

    Attributes:
        thread_id: The caller's id of it.
        status: Its status.
        node_thread_id: The id of its thread on the node; None for a tool's.
        report: The node's signed report; None while it runs.
    """

    thread_id: str
    status: RunStatus
    node_thread_id: str | None = None
    report: Mapping[str, Any] | None = None


@frozen
class NodeStatus:
    """The load of a node, and the use of a caller's quotas.

    Attributes:
        ryecore: The node's version.
        running: The runs of this caller that have not ended.
        max_running: How many it may have at once.
        stored_bytes: The bytes of its objects and spaces.
        max_stored_bytes: The most that they may take.
        spent_microcents: What its runs have spent on models, in units of 1e-8 USD.
        max_spend_microcents: The most that they may spend in all; None for no bound.
        is_accepting: Whether the node takes new runs.
    """

    ryecore: str
    running: int
    max_running: int
    stored_bytes: int
    max_stored_bytes: int
    spent_microcents: int
    max_spend_microcents: int | None
    is_accepting: bool


@frozen
class Problem:
    """Why a node refuses a request, in the form of RFC 9457.

    Attributes:
        type: Its name, from the table in docs/design/remote.md.
        title: What is wrong, in one sentence.
        status: The status of the response.
        detail: More about it.
        next_step: What to do about it.
    """

    type: ProblemType
    title: str
    status: int
    detail: str = ""
    next_step: str = ""


def decode_request(content: bytes) -> object:
    """Return the JSON that a caller sent: of I-JSON's texts and numbers, and of bounded depth.

    Raises:
        ValueError: It isn't such JSON.

    Source: RFC 7493.
    """
    value = decode_answer(content)
    if b"\\u" in content:
        try:
            _text(value).encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half a surrogate pair, which isn't text") from None
    return value


def decode_answer(content: bytes) -> object:
    """Return the JSON that a node answered. Half surrogate pairs are left, as tools return them.

    Raises:
        ValueError: It isn't JSON, has a number that no float holds, is nested too deeply, or holds
            too many values.
    """
    if has_too_many_values(content):
        raise ValueError(f"it holds more than {MAX_VALUES:,} values")
    try:
        value: object = FINITE_DECODER.decode(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    openings = content.count(b"{") + content.count(b"[")  # with so few it can't be deep
    if openings > MAX_DEPTH and is_nested_too_deeply(value):
        raise ValueError("it is nested too deeply")
    return value


def has_too_many_values(content: bytes) -> bool:
    """Return whether JSON holds more values than are read, without reading it."""
    if len(content) <= MAX_VALUES or _count_openings(content) <= MAX_VALUES:
        return False
    return _count_openings(_STRING.sub(b"", content)) > MAX_VALUES


def _count_openings(content: bytes) -> int:
    return content.count(b",") + content.count(b"[") + content.count(b"{")


def is_nested_too_deeply(value: object, most: int = MAX_DEPTH) -> bool:
    """Return whether a value that was read from JSON has more levels of objects and arrays."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(most):
        if not level:
            return False
        level = [
            one
            for outer in level
            for one in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(one, dict | list)
        ]
    return bool(level)


def read_body(document: object, kind: type[T]) -> T:
    """Read what a caller sent. A member that isn't known is refused.

    Raises:
        ConversionError: It isn't as the protocol says. Every problem of a brief document is named,
            and one of a longer one, which may have millions.
    """
    try:
        return _BODIES.read(document, kind)
    except ConversionError:
        if not _is_brief(document):
            raise
    return WIRE.read(document, kind)


def _is_brief(document: object) -> bool:
    """Return whether a document has at most 1,000 values."""
    waiting, count = [document], 0
    while waiting and count <= _BRIEF:
        one = waiting.pop()
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        count += 1 + len(inner)
        if count <= _BRIEF:
            waiting += inner
    return count <= _BRIEF


def read_answer(document: object, kind: type[T]) -> T:
    """Read what a node answered. Members that aren't known are ignored.

    Raises:
        ConversionError: It isn't as the protocol says; every problem is named.
    """
    return RECORDS.read(document, kind)
