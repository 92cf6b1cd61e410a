"""What comes home of a run on a node: the files of its thread, and their proof.

They are the node's: its report names them by hash, the node's key signed the report, and the run
key of that report signed the transcript. They never count as this user's own records.

Source: docs/design/remote.md#at-home; decision 74.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import anyio
from attrs import evolve

from ryecore.errors import RemoteUnavailable, RemoteUntrusted, RyeError, SigningError
from ryecore.frozen import frozen
from ryecore.lillux.keys import PublicKey
from ryecore.remote.following import REPORTED, REQUESTED
from ryecore.remote.ports import Node
from ryecore.remote.protocol.models import MAX_REPORT_BYTES
from ryecore.remote.protocol.reports import (
    THREAD_FILES,
    TRANSCRIPT_FILE,
    EarlierThread,
    ReportedFile,
    RunReport,
    TranscriptHead,
    read_report,
)
from ryecore.state.model import RemotePlace, ThreadRecord
from ryecore.state.node_files import NodeFiles
from ryecore.state.store import ThreadStore
from ryecore.state.transcript_format import Record
from ryecore.state.transcript_report import TranscriptReport
from ryecore.state.waiting import run_in_thread
from ryecore.strict_json import read_json

__all__ = [
    "find_report",
    "prove",
    "pull_files",
    "pull_missing",
    "read_object",
    "records_at_home",
]

REPORT_FILE: Final = "report.json"
_UNFINISHED: Final = ".unfinished"
"""Stands beside the report until all files that it names are there."""

_PAUSES_S: Final = (0.1, 0.4, 1.6, 6.4)
"""The pauses behind attempts in a row that bring next to nothing."""

_LEAST_BYTES: Final = 64 * 1024
"""What an attempt has to bring so that it counts as progress."""

_MAX_ATTEMPTS: Final = 100
_MAX_BYTES: Final = 512 * 1024 * 1024
"""The most bytes of all files of one run that come home."""


async def pull_files(
    node: Node, report: RunReport, document: Mapping[str, Any], files: NodeFiles
) -> tuple[str, ...]:
    """Fetch the files that a report names, and keep the report beside them.

    Those of the last thread come first, then those of the threads before it, each in a folder
    `earlier/N`, from 1 for the first. Files of other names, and those beyond the bound, stay on
    the node.

    Args:
        node: The node.
        report: Its proved report.
        document: The same as the node signed it.
        files: Where they are kept.

    Returns:
        The names of what came.

    Raises:
        RemoteError: The node can't be reached, or sends another file. What came before stays, and
            `pull_missing` fetches the rest.
        StateError: They can't be written.
    """
    files.write(_UNFINISHED, b"")
    files.write(REPORT_FILE, json.dumps(document).encode())
    came: list[str] = []
    left_bytes = _MAX_BYTES
    for folder, one in _wanted(report):
        left_bytes -= one.size_bytes
        if one.size_bytes < 0 or left_bytes < 0:
            break
        below = files.below(*folder)
        if below.has(one.name):  # it came before the rest couldn't
            continue
        with below.receiving(one.name) as path:
            await read_object(node, one.sha256, one.size_bytes, path)
        came.append("/".join((*folder, one.name)))
    files.remove(_UNFINISHED)
    return tuple(came)


async def pull_missing(
    store: ThreadStore, record: ThreadRecord, connect: Callable[[], Awaitable[Node]]
) -> None:
    """Fetch the files of an ended run that couldn't come home at its end, if there are any.

    Args:
        store: The threads.
        record: The run's row.
        connect: Returns the node, where there is something to fetch.

    Raises:
        RyeError: They can't come now either.
    """
    files = store.node_files(record.thread_id)
    if files.has(REPORT_FILE) and not files.has(_UNFINISHED):
        return
    found = await _proved_report(store, record)
    if found is not None:
        await pull_files(await connect(), *found, files)


def records_at_home(files: NodeFiles) -> tuple[Record, ...]:
    """Return the records of a run's threads on its node, in the order in which they ran.

    None of them, before all files of the run have come home.

    Raises:
        StateError: A file can't be read.
    """
    if not files.has(REPORT_FILE) or files.has(_UNFINISHED):
        return ()
    earlier = files.below("earlier").path
    numbers = sorted(int(one.name) for one in earlier.glob("*") if one.name.isdecimal())
    folders = [*(files.below(*_folder(number)) for number in numbers), files]
    return tuple(record for one in folders for record in one.records())


async def read_object(node: Node, sha256: str, size_bytes: int, path: Path) -> None:
    """Read an object of a node; where the connection is lost, go on from there.

    Raises:
        RemoteError: The node can't be reached, or sends another object.
        OSError: The file can't be written.
    """
    failed = 0
    for tried in count(1):
        had_bytes = _size_of(path)
        try:
            await node.read_object(sha256, size_bytes, path)
        except RemoteUnavailable:
            failed = 0 if _size_of(path) - had_bytes > _LEAST_BYTES else failed + 1
            if failed > len(_PAUSES_S) or tried == _MAX_ATTEMPTS:
                raise
        else:
            return
        await anyio.sleep(_PAUSES_S[max(failed - 1, 0)])


def _size_of(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _wanted(report: RunReport) -> Iterator[tuple[tuple[str, ...], ReportedFile]]:
    """Yield each file that comes home, with the folder that it is kept in."""
    listed: list[tuple[tuple[str, ...], tuple[ReportedFile, ...]]] = [((), report.files)]
    listed += [(_folder(number), one.files) for number, one in _earlier(report)]
    for folder, files in listed:
        by_name = {one.name: one for one in files}
        yield from ((folder, by_name[name]) for name in THREAD_FILES if name in by_name)


def _earlier(report: RunReport) -> Iterator[tuple[int, EarlierThread]]:
    return enumerate(report.earlier, 1)


def _folder(number: int) -> tuple[str, ...]:
    """Return the folder of an earlier thread's files. What the node calls it names no folder."""
    return ("earlier", str(number))


# Proof


@frozen
class _Reported:
    """The report of a run as the log at home has it, its id there, and the key that signed it."""

    key: PublicKey | None
    asked_id: str | None
    document: Mapping[str, Any] | None


async def find_report(store: ThreadStore, record: ThreadRecord) -> RunReport | None:
    """Return the proved report of a run on a node; None where the node has reported nothing.

    Raises:
        SigningError: The log at home hasn't the key of the node.
        RemoteUntrusted: The report isn't signed by it, or is that of another run.
    """
    found = await _proved_report(store, record)
    return None if found is None else found[0]


async def _proved_report(
    store: ThreadStore, record: ThreadRecord
) -> tuple[RunReport, Mapping[str, Any]] | None:
    """Return the proved report of a run, and the same as the node signed it."""
    found = await _reported(store, record.thread_id)
    if found.document is None:  # a late one came when the log at home was closed
        content = store.node_files(record.thread_id).read(REPORT_FILE, MAX_REPORT_BYTES)
        found = evolve(found, document=None if content is None else _read(content))
    if record.place is None or found.document is None:
        return None
    if found.key is None or found.key.fingerprint != record.place.node:
        raise SigningError(f"The key of the node {record.place.node} isn't in the log at home.")
    report = read_report(found.document, found.key)
    if report.thread_id != found.asked_id:
        raise RemoteUntrusted(
            f"The report kept for {record.thread_id} is that of another run.",
            next_step="Ask for it again once the node can be reached: rye threads show "
            f"{record.thread_id}",
            remote=record.place.remote,
        )
    return report, found.document


async def prove(
    store: ThreadStore, record: ThreadRecord, at_home: TranscriptReport
) -> TranscriptReport:
    """Prove what came home of a run on a node.

    Args:
        store: The threads.
        record: The run's row.
        at_home: The report on the run's log at home, which has the node's key and its report.

    Returns:
        The report on the node's transcript, with every problem of the rest; that of the log at
        home where the node has reported nothing.
    """
    place = record.place
    problems = [f"At home: {one}" for one in at_home.problems]
    try:
        report = await find_report(store, record)
    except RyeError as problem:
        return evolve(at_home, ok=False, problems=(*problems, problem.message))
    if place is None or report is None:
        return at_home
    files = store.node_files(record.thread_id)
    return await run_in_thread(_prove_files, files, report, place, at_home, problems)


def _prove_files(
    files: NodeFiles,
    report: RunReport,
    place: RemotePlace,
    at_home: TranscriptReport,
    problems: list[str],
) -> TranscriptReport:
    for folder, one in _wanted(report):
        found = files.below(*folder).digest(one.name)
        path = files.below(*folder).path / one.name
        if found is None:
            problems.append(f"{path} is missing; the node reported it.")
        elif found != (one.sha256, one.size_bytes):
            problems.append(f"{path} isn't the file that the node reported.")
    proved = evolve(at_home, node=place)
    if report.run_key is not None and report.node_thread_id is not None:
        try:
            key = PublicKey.from_pem(report.run_key)
        except RyeError as problem:
            problems.append(f"The run key in the node's report can't be read: {problem.message}")
            return evolve(proved, ok=False, problems=tuple(problems))
        proved = _prove_transcript(files, report.node_thread_id, report.transcript, key)
        earlier: dict[str, TranscriptReport] = {}
        for number, before in _earlier(report):
            names = [one.name for one in before.files]
            if before.transcript is None and TRANSCRIPT_FILE not in names:
                continue  # it never began
            below, thread_id = files.below(*_folder(number)), before.node_thread_id
            found_there = _prove_transcript(below, thread_id, before.transcript, key)
            earlier[thread_id] = evolve(found_there, node=place)
            problems += [f"{thread_id}: {problem}" for problem in found_there.problems]
        proved = evolve(proved, node=place, ok=proved.ok and at_home.ok, earlier=earlier)
        problems += proved.problems
    return evolve(proved, ok=proved.ok and not problems, problems=tuple(problems))


def _prove_transcript(
    files: NodeFiles, thread_id: str, head: TranscriptHead | None, key: PublicKey
) -> TranscriptReport:
    return files.verify_transcript(
        thread_id, key, None if head is None else (head.offset, head.digest)
    )


def _read(content: bytes) -> Mapping[str, Any] | None:
    try:
        document = read_json(content.decode())
    except ValueError:
        return None
    return document if isinstance(document, Mapping) else None


async def _reported(store: ThreadStore, thread_id: str) -> _Reported:
    key: PublicKey | None = None
    asked_id: str | None = None
    document: Mapping[str, Any] | None = None
    async for one in store.records.read(thread_id):
        if one.type == REQUESTED:
            with suppress(RyeError, KeyError, AttributeError, TypeError):
                key = PublicKey.from_pem(one.payload["node_key"])
                asked_id = one.payload["body"]["thread_id"]
        if one.type == REPORTED and isinstance(one.payload.get("report"), Mapping):
            document = one.payload["report"]
    return _Reported(key, asked_id, document)
