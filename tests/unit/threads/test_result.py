"""The outputs of a thread as a value of a type."""

from dataclasses import dataclass
from datetime import date
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel

from ryecore.errors import InputError, ThreadFailed
from ryecore.threads.result import ThreadResult


@dataclass
class Report:
    title: str
    due: date
    pages: int = 1


class Short(TypedDict):
    title: str


class Strict(BaseModel):
    title: str
    due: date


def result(outputs: dict[str, object], **changed: Any) -> ThreadResult:
    said = {"status": "success", "error": None, "duration_ms": 1.0, "data": outputs}
    said |= {"item_id": "directive:a/b", "thread_id": "a/b-1", "ended": "completed"}
    return ThreadResult(**(said | {"outputs": outputs} | changed))


OUTPUTS: dict[str, object] = {"title": "Tides", "due": "2026-03-01"}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Report, Report("Tides", date(2026, 3, 1))),
        (Short, {"title": "Tides"}),
        (Strict, Strict(title="Tides", due=date(2026, 3, 1))),
        (dict[str, str], OUTPUTS),
    ],
)
def test_the_outputs_are_a_value_of_a_type(kind: Any, value: object) -> None:
    assert result(OUTPUTS).outputs_as(kind) == value


@pytest.mark.parametrize(
    ("kind", "outputs", "said"),
    [
        (Report, {"title": "Tides"}, '"due" is a required property'),
        (Report, {"title": 5, "due": "March"}, "title: 5 is not of type"),
        (bytes, OUTPUTS, "can't be shown the type bytes"),
    ],
)
def test_outputs_that_do_not_fit_are_refused_with_each_reason(
    kind: Any, outputs: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match="directive:a/b don't fit") as caught:
        result(outputs).outputs_as(kind)
    assert said in str(caught.value)
    assert caught.value.next_step


def test_a_thread_that_failed_has_no_outputs() -> None:
    with pytest.raises(ThreadFailed):
        result({}, status="error", error="It was too much.").outputs_as(Report)
