"""What comes from the other end, read as the protocol's documents: read, or refused."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest
from attrs import evolve, fields
from hypothesis import given, settings
from hypothesis import strategies as st

from ryecore.convert.strict import RECORDS, WIRE, ConversionError
from ryecore.errors import RemoteUntrusted
from ryecore.lillux.keys import SigningKey
from ryecore.remote.protocol.models import (
    MAX_DEPTH,
    CancelBody,
    Ceiling,
    ExecuteBody,
    Identity,
    Missing,
    NodeStatus,
    Problem,
    RunState,
    SnapshotAnswer,
    StoredAnswer,
    decode_answer,
    decode_request,
    is_nested_too_deeply,
    read_answer,
    read_body,
)
from ryecore.remote.protocol.reports import (
    Change,
    EarlierThread,
    ReportedFile,
    RunReport,
    TranscriptHead,
    read_report,
    sign_report,
)
from ryecore.remote.protocol.snapshots import Snapshot, SnapshotFile, check_snapshot
from ryecore.state.model import Cost
from ryecore.state.records import sign_record
from tests.fuzzing import anything, changed
from tests.matrix import IS_SOAK

NODE = SigningKey(bytes([1]) * 32)
HASH = "0" * 64
REPORT = RunReport(
    "t-1", "tool:greet", "a" * 16, "b" * 16, HASH, HASH, "completed", {"success": True}, Cost(),
    False, "n-1", "pem", TranscriptHead(1, HASH), (ReportedFile("thread.json", HASH, 2),),
    (Change("out.txt", HASH, 2, False, None),), "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "0",
    (EarlierThread("n-0", None, (ReportedFile("transcript.jsonl", HASH, 2),)),),
)  # fmt: skip
BODIES = (
    Snapshot((SnapshotFile("project", ".ai/tools/a.py", HASH, 3, True),)),
    ExecuteBody(
        "t-1", "tool:greet", {"name": "x"}, "inline", HASH, "0.1", ceiling=Ceiling(1, 2),
        capabilities=("rye.execute.*",), limits={"turns": 1},
    ),
    CancelBody(kill=True),
)  # fmt: skip
ANSWERS = (
    Identity("pem", "base64", 1, "0.1"),
    SnapshotAnswer(HASH, (Missing(HASH, 3),)),
    StoredAnswer((HASH,), (Missing(HASH, 3),)),
    RunState("t-1", "running", "n-1", {"any": "report"}),
    NodeStatus("0.1", 1, 2, 3, 4, 5, None, True),
    Problem("busy", "The node is full.", 503),
)


@pytest.mark.parametrize("body", BODIES, ids=lambda one: type(one).__name__)
def test_a_body_is_read_as_it_was_written(body: object) -> None:
    assert read_body(json.loads(json.dumps(WIRE.write(body))), type(body)) == body


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda one: type(one).__name__)
def test_an_answer_is_read_as_it_was_written_and_may_have_more(answer: object) -> None:
    document = json.loads(json.dumps(WIRE.write(answer)))
    assert read_answer({**document, "of_a_later_version": 1}, type(answer)) == answer


@pytest.mark.parametrize("body", BODIES, ids=lambda one: type(one).__name__)
def test_a_body_with_an_unknown_member_is_refused(body: object) -> None:
    with pytest.raises(ConversionError, match="more"):
        read_body({**WIRE.write(body), "more": 1}, type(body))


@pytest.mark.parametrize(
    ("read", "written"),
    [
        *((read_body, one) for one in BODIES),
        *((read_answer, one) for one in ANSWERS),
    ],
    ids=lambda one: type(one).__name__,
)
@settings(max_examples=2000 if IS_SOAK else 40)
@given(data=st.data())
def test_whatever_comes_is_read_or_refused(
    data: st.DataObject, read: Callable[[object, type[object]], object], written: object
) -> None:
    document = changed(data, WIRE.write(written))
    for one in (document, data.draw(anything)):
        try:
            found = read(one, type(written))
        except ConversionError as problem:
            str(problem).encode()  # it can be answered and shown
            continue
        assert type(found) is type(written)
        if isinstance(found, Snapshot) and check_snapshot(found) is None:
            assert read_body(WIRE.write(found), Snapshot).id == found.id


def test_the_report_of_an_older_node_has_no_earlier_threads() -> None:
    document = {name: one for name, one in RECORDS.write(REPORT).items() if name != "earlier"}
    signed = sign_record("node-report", document, NODE)
    assert read_report(signed, NODE.public) == evolve(REPORT, earlier=())


@pytest.mark.parametrize(
    "earlier",
    [
        EarlierThread("n-1", None, ()),
        EarlierThread("n-0", TranscriptHead(-1, HASH), ()),
        EarlierThread("n-0", None, (ReportedFile("../key.pem", HASH, 2),)),
        EarlierThread("n-0", None, (ReportedFile("thread.json", "../key.pem", 2),)),
        EarlierThread("n-0", None, (ReportedFile("thread.json", HASH, -2),)),
    ],
)
def test_no_earlier_thread_of_a_report_lies(earlier: EarlierThread) -> None:
    signed = sign_report(evolve(REPORT, earlier=(earlier,)), NODE)
    with pytest.raises(RemoteUntrusted, match="can't be read"):
        read_report(signed, NODE.public)


@settings(max_examples=2000 if IS_SOAK else 100)
@given(data=st.data())
def test_a_report_that_is_not_as_the_node_signed_it_is_refused(data: st.DataObject) -> None:
    signed = sign_report(REPORT, NODE)
    document = changed(data, signed)
    if document == signed or not isinstance(document, Mapping):
        return
    with pytest.raises(RemoteUntrusted):
        read_report(document, NODE.public)


@settings(max_examples=2000 if IS_SOAK else 40)
@given(data=st.data())
def test_a_report_that_a_lying_node_signed_is_read_or_refused(data: st.DataObject) -> None:
    document = changed(data, RECORDS.write(REPORT))
    if not isinstance(document, Mapping):
        return
    try:
        signed = sign_record("node-report", document, NODE)
    except ValueError:
        return  # no JSON
    try:
        found = read_report(signed, NODE.public)
    except RemoteUntrusted:
        return
    assert {one.name for one in fields(RunReport)} <= set(dir(found))


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"{}x", b"\xff", b"\xef\xbb\xbf{}", b"NaN", b"-Infinity", b"1e999", b"9" * 5000,
        b"[" * 100_000, b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b'{"a":' * MAX_DEPTH + b"[]" + b"}" * MAX_DEPTH,
    ],
    ids=lambda content: ascii(content[:12]),
)  # fmt: skip
def test_what_is_not_json_of_the_protocol_is_refused(content: bytes) -> None:
    for decode in (decode_request, decode_answer):
        with pytest.raises(ValueError, match=r".+"):
            decode(content)


@pytest.mark.parametrize(
    ("content", "is_refused"),
    [
        (b'{"files":[' + b"{}," * 2_000_000 + b"{}]}", True),
        (b"[" + b"1," * 2_000_000 + b"1]", True),
        (b'"' + b'\\",' * 3_000_000, True),  # never ends: refused as no JSON
        (b'"' + b"[,{" * 2_000_000 + b'"', False),
        (b'["' + b'\\",' * 2_500_000 + b'"]', False),
    ],
    ids=["objects", "numbers", "unended", "text", "escapes"],
)
def test_a_document_of_few_bytes_and_many_values_is_refused_unread(
    content: bytes, is_refused: bool
) -> None:
    """Text may hold as many commas and brackets as it likes."""
    began_s = time.process_time()
    if is_refused:
        with pytest.raises(ValueError, match=r"more than|Unterminated"):
            decode_request(content)
    else:
        assert decode_request(content)
    assert time.process_time() - began_s < 10


def test_half_a_surrogate_pair_is_refused_in_requests_alone() -> None:
    """A tool's result may hold one, as it may in a local call."""
    assert decode_request(b'["\\ud83d\\ude00"]') == ["\U0001f600"]
    for content in (b'["\\ud800"]', b'{"\\uDC00": 1}'):
        assert decode_answer(content)
        with pytest.raises(ValueError, match="surrogate"):
            decode_request(content)


def test_the_deepest_document_can_be_written_signed_and_read() -> None:
    """Also where the stack is half full, as it is in a server."""

    def below(frames: int) -> None:
        if frames:
            below(frames - 1)
            return
        room = MAX_DEPTH - 2  # of the report, and of its result
        content = b"[" * room + b"]" * room
        signed = sign_report(evolve(REPORT, result={"deep": decode_answer(content)}), NODE)
        assert read_report(signed, NODE.public).result == signed["result"]
        assert decode_answer(json.dumps(signed).encode()) == signed
        assert is_nested_too_deeply({"report": signed})

    below(400)


@settings(max_examples=5000 if IS_SOAK else 200)
@given(content=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_nothing_but_value_error_comes_of_bytes(content: bytes) -> None:
    for decode in (decode_request, decode_answer):
        with suppress(ValueError):
            decode(content)


FILE, CHANGE = REPORT.files[0], Change("out.txt", HASH, 2, False, None)


@pytest.mark.parametrize(
    "lie",
    [
        {"status": "running"},
        *({"cost": evolve(Cost(), **{name: value})}
          for name in ("turns", "input_tokens", "output_tokens", "spend_microcents")
          for value in (-1, 10**16, 2**70)),
        *({"files": (evolve(FILE, name=name),)}
          for name in ("../thread.json", "/etc/passwd", "", "key.pem", "thread.json\0")),
        {"files": (FILE, FILE)},
        {"files": (evolve(FILE, sha256="../" + "0" * 61),)},
        {"files": (evolve(FILE, size_bytes=-1),)},
        *({"changes": (evolve(CHANGE, path=path),)}
          for path in ("../up", "/etc/passwd", "a/../../b", "a//b", "", ".", "a\0b", "\ud800",
                       "a" * 5000)),
        {"changes": (CHANGE, CHANGE)},
        {"changes": (evolve(CHANGE, base_sha256="x"),)},
        {"transcript": TranscriptHead(-1, HASH)},
    ],
    ids=lambda lie: ascii(lie)[:60],
)  # fmt: skip
def test_what_no_honest_node_reports_is_refused(lie: Mapping[str, object]) -> None:
    """Negative costs would give money back to a budget; names are where files come to stand."""
    signed = json.loads(json.dumps(sign_report(evolve(REPORT, **lie), NODE)))
    with pytest.raises(RemoteUntrusted, match="can't be read"):
        read_report(signed, NODE.public)


def test_a_report_is_read_as_it_was_written() -> None:
    signed = json.loads(json.dumps(sign_report(REPORT, NODE)))
    assert read_report(signed, NODE.public) == REPORT
