"""Reports: a node's signed statement of how a run ended, and what it cost.

Source: docs/design/remote.md#models; decisions 72 and 74.
"""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ryecore.convert.strict import RECORDS, ConversionError
from ryecore.errors import RemoteUntrusted
from ryecore.frozen import frozen
from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.remote.protocol.models import RunStatus
from ryecore.state.model import Cost
from ryecore.state.records import holds, sign_record

__all__ = [
    "MAX_EARLIER",
    "THREAD_FILES",
    "TRANSCRIPT_FILE",
    "Change",
    "EarlierThread",
    "ReportedFile",
    "RunReport",
    "TranscriptHead",
    "read_report",
    "sign_report",
]

TRANSCRIPT_FILE: Final = "transcript.jsonl"
"""The name that the transcript of a thread has in a report."""

THREAD_FILES: Final = (TRANSCRIPT_FILE, "thread.json", "capabilities.md", "export.md")
"""The names that the files of a thread have in a report."""

MAX_EARLIER: Final = 1_000
"""The most earlier threads of a chain that a report has: the last of them."""

_KIND: Final = "node-report"
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MAX_COUNT: Final = 10**15
"""The largest number of a report: registries and ledgers can add up thousands of them."""

_MAX_PATH_BYTES: Final = 4096


@frozen
class TranscriptHead:
    """The last checkpoint of a transcript."""

    offset: int
    digest: str


@frozen
class ReportedFile:
    """A file of a run's thread on the node, which the caller can read as an object."""

    name: str
    sha256: str
    size_bytes: int


@frozen
class EarlierThread:
    """A thread of a run's chain that another one continued, by a handoff or a resume.

    Attributes:
        node_thread_id: Its id on the node.
        transcript: The end of its transcript; None without one.
        files: Its files.
    """

    node_thread_id: str
    transcript: TranscriptHead | None
    files: tuple[ReportedFile, ...]


@frozen
class Change:
    """A project file that a run changed.

    Attributes:
        path: Its path below the project's folder.
        sha256: The SHA-256 of its new content; None for a removed file.
        size_bytes: Its new length; 0 for a removed file.
        executable: Whether its owner may execute it.
        base_sha256: What it was in the snapshot; None for a new file.
    """

    path: str
    sha256: str | None
    size_bytes: int
    executable: bool
    base_sha256: str | None


@frozen(slots=False)
class RunReport:
    """How a run on a node ended.

    Attributes:
        thread_id: The caller's id of it.
        item_id: The item, as a canonical ref.
        caller: The fingerprint of the caller's key.
        node: The fingerprint of the node's key.
        snapshot: The id of the snapshot that it ran in.
        request_sha256: The SHA-256 of the request's body in canonical form, without `wait_s`.
        status: How it ended.
        result: The result or the error, as the same call answers locally.
        cost: What it cost.
        assumed: Whether a part of the cost is assumed, because something died.
        node_thread_id: The id of its thread on the node; None for a tool's.
        run_key: The public key, in PEM, that signed the thread's records; None without a thread.
        transcript: The end of its transcript; None without one.
        files: The files of its thread.
        changes: The project files that it changed; None where that wasn't asked for.
        created_at: When the node took the request, in UTC.
        ended_at: When it ended, in UTC.
        ryecore: The node's version of ryecore.
        earlier: The threads of its chain before the last one, oldest first.
    """

    thread_id: str
    item_id: str
    caller: str
    node: str
    snapshot: str
    request_sha256: str
    status: RunStatus
    result: Mapping[str, Any]
    cost: Cost
    assumed: bool
    node_thread_id: str | None
    run_key: str | None
    transcript: TranscriptHead | None
    files: tuple[ReportedFile, ...]
    changes: tuple[Change, ...] | None
    created_at: str
    ended_at: str
    ryecore: str
    earlier: tuple[EarlierThread, ...] = ()


def sign_report(report: RunReport, key: SigningKey) -> Mapping[str, Any]:
    """Return a report as a record that the node's key signs."""
    return sign_record(_KIND, RECORDS.write(report), key)


def read_report(document: Mapping[str, Any], key: PublicKey) -> RunReport:
    """Read a report, and prove that the node's key signed it.

    Of a node that lies, its numbers can be added and its names be used: none is negative or beyond
    bounds, and none leads out of a folder.

    Raises:
        RemoteUntrusted: It is not signed by this key, or isn't a report.
    """
    if not holds(_KIND, document, key):
        raise RemoteUntrusted(
            "The node's report is not signed by the key of its remote.",
            next_step="Compare the node's key with its operator's: rye remote check NAME",
        )
    plain = {name: value for name, value in document.items() if name != "_signature"}
    try:
        report = RECORDS.read(plain, RunReport)
    except ConversionError as problem:
        raise _unreadable(str(problem)) from None
    wrong = next(_problems(report), None)
    if wrong is not None:
        raise _unreadable(wrong)
    return report


def _unreadable(problem: str) -> RemoteUntrusted:
    return RemoteUntrusted(
        f"The node's report can't be read: {problem}.",
        next_step="See that both ends run the same version of ryecore.",
    )


def _problems(report: RunReport) -> Iterator[str]:
    """Yield what no honest node reports."""
    if report.status == "running":
        yield "it says that the run has not ended"
    cost, changes = report.cost, report.changes or ()
    listed = [report.files, *(one.files for one in report.earlier)]
    heads = [report.transcript, *(one.transcript for one in report.earlier)]
    counts = [cost.turns, cost.input_tokens, cost.output_tokens, cost.spend_microcents]
    counts += [one.size_bytes for files in listed for one in files]
    counts += [one.size_bytes for one in changes]
    counts += [one.offset for one in heads if one is not None]
    if not all(0 <= one <= _MAX_COUNT for one in counts):
        yield "a number in it is negative or too large"
    digests: list[str | None] = [one.sha256 for files in listed for one in files]
    for change in changes:
        digests += (change.sha256, change.base_sha256)
    if not all(one is None or _SHA256.fullmatch(one) for one in digests):
        yield "a hash in it isn't a SHA-256"
    for files in listed:
        names = [one.name for one in files]
        if not set(names) <= set(THREAD_FILES) or len(set(names)) < len(names):
            yield "it has files that no thread has"
    chain = [*(one.node_thread_id for one in report.earlier), report.node_thread_id]
    if len(chain) > MAX_EARLIER + 1 or len(set(chain)) < len(chain):
        yield "its chain of threads is too long, or has one twice"
    paths = [one.path for one in changes]
    if not all(map(_stays_below, paths)) or len(set(paths)) < len(paths):
        yield "a changed file in it isn't one of the project, or stands there twice"


def _stays_below(path: str) -> bool:
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        return False
    parts = path.split("/")
    return size <= _MAX_PATH_BYTES and "\0" not in path and not {"", ".", ".."} & set(parts)
