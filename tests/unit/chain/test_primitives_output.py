"""What a process left, read as a result."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.chain.primitives import Outcome, read_outcome
from ryecore.lillux.processes import ProcessResult


def done(stdout: bytes = b"", stderr: bytes = b"", **changes: Any) -> ProcessResult:
    facts: dict[str, Any] = {
        "status": "exited",
        "exit_code": 0,
        "signal": None,
        "stdout": stdout,
        "stderr": stderr,
        "stdout_total_bytes": len(stdout),
        "stderr_total_bytes": len(stderr),
        "duration_ms": 1.0,
        "pid": 1,
        "left_behind": (),
    }
    return ProcessResult(**(facts | changes))


def outcome(stdout: bytes = b"", stderr: bytes = b"", **changes: Any) -> Outcome:
    return read_outcome(done(stdout, stderr, **changes), 5)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_one_json_document_of_any_type_becomes_the_data(value):
    read = outcome(json.dumps(value).encode() + b"\n")
    assert read.success
    assert read.data == value


@pytest.mark.parametrize(
    "printed",
    [
        b"hello\n",
        b"",
        b'{"a": 1}\n{"b": 2}\n',
        b'{"a": ',
        b"NaN",
        b'{"a": Infinity}',
        b"[-Infinity]",
    ],
)
def test_anything_else_is_kept_as_it_was_printed(printed):
    read = outcome(printed, b"warned")
    assert read.success
    assert read.data == {"stdout": printed.decode(), "stderr": "warned", "return_code": 0}


def test_json_that_is_nested_without_measure_is_kept_as_text():
    read = outcome(b"[" * 200_000 + b"]" * 200_000)
    assert isinstance(read.data, dict)


def test_bytes_that_are_no_utf8_stay_visible():
    read = outcome(b"a\xffb")
    assert isinstance(read.data, dict)
    assert read.data["stdout"] == "a\\xffb"


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"success": False, "error": "no such file"}, "no such file"),
        ({"status": "error", "error": "broken"}, "broken"),
        ({"success": False}, "reported a failure without a reason"),
        ({"status": "error", "error": {"code": 1}}, "reported a failure without a reason"),
    ],
)
def test_an_object_that_says_so_is_a_failed_run(document, error):
    read = outcome(json.dumps(document).encode())
    assert not read.success
    assert error in str(read.error)
    assert read.data == document


@pytest.mark.parametrize(
    "document", [{"success": True}, {"success": None}, {"success": 0}, {"error": "x"}, [False]]
)
def test_no_other_document_is_a_failed_run(document):
    assert outcome(json.dumps(document).encode()).success


def test_a_declared_failure_without_a_reason_is_explained_by_what_was_said():
    assert outcome(b'{"success": false}', b"disk full\n").error == "disk full"


def test_an_exit_code_is_a_failure_and_the_document_is_kept():
    read = outcome(b'{"partial": 1}', b"boom\n", exit_code=3)
    assert (read.success, read.error, read.data) == (False, "boom", {"partial": 1})


def test_an_exit_code_without_a_word_says_the_code():
    read = outcome(exit_code=7)
    assert "code 7" in str(read.error)
    assert read.data == {"stdout": "", "stderr": "", "return_code": 7}


def test_a_documents_own_error_explains_an_exit_code():
    assert outcome(b'{"error": "no row"}', b"noise", exit_code=1).error == "no row"


def test_a_signal_is_a_failure_that_names_it():
    read = outcome(status="signaled", exit_code=None, signal=9)
    assert "signal 9" in str(read.error)
    assert isinstance(read.data, dict)
    assert read.data["return_code"] == -9


def test_a_timeout_names_its_seconds_and_keeps_what_came_out():
    read = outcome(b"half", b"still working", status="timed_out", exit_code=None, signal=15)
    assert "within 5 s" in str(read.error)
    assert "still working" in str(read.error)
    assert isinstance(read.data, dict)
    assert read.data["stdout"] == "half"


@pytest.mark.parametrize("status", ["cancelled", "unknown"])
def test_an_end_without_a_verdict_is_a_failure(status):
    read = outcome(b"{}", status=status, exit_code=None)
    assert not read.success
    assert read.error


def test_output_that_was_cut_is_counted_and_never_read_as_a_document():
    read = outcome(b"1234", stdout_total_bytes=1000)
    assert read.notes == {"stdout_bytes_cut": 996}
    assert isinstance(read.data, dict)
    assert read.data["stdout"] == "1234"


def test_processes_that_were_left_behind_are_told():
    assert outcome(left_behind=(7, 8)).notes == {"left_behind_pids": [7, 8]}


def test_an_errors_text_is_bounded_and_keeps_its_end():
    read = outcome(b"", b"x" * 100_000 + b"the reason", exit_code=1)
    assert len(str(read.error)) < 5000
    assert str(read.error).endswith("the reason")


def test_paths_in_what_was_said_are_the_authors_own():
    read = read_outcome(
        done(b"", b'File "/sealed/ab/tool.py"', exit_code=1),
        5,
        lambda text: text.replace("/sealed/ab", "/home/me"),
    )
    assert "/home/me/tool.py" in str(read.error)


@pytest.mark.parametrize("code", [0, 1])
def test_a_tools_own_error_is_cut_where_it_is_long_and_stays_whole_in_the_data(code):
    document = {"success": False, "error": "\x1b[2J" * 2_000_000}
    read = outcome(json.dumps(document).encode(), exit_code=code)
    assert read.error is not None
    assert len(read.error) < 6000
    assert read.error.endswith("… 7995000 more characters")
    assert read.data == document
