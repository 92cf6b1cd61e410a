import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.llm import LlmError
from ryecore.providers.errors import check_key, kind_of_status, retry_after_s


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, "bad_request"),
        (400, "bad_request"),
        (401, "auth"),
        (402, "auth"),
        (403, "auth"),
        (404, "bad_request"),
        (408, "unavailable"),
        (422, "bad_request"),
        (429, "rate_limit"),
        (500, "unavailable"),
        (529, "unavailable"),
        (204, "unknown"),
    ],
)
def test_a_status_has_its_kind(status: int, kind: str) -> None:
    assert kind_of_status(status) == kind


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 7.5 "}, 7.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "60"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "60"}, 60.0),
    ],
)
def test_the_wait_that_a_server_asks_for(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after_s(headers) == wait_s


def test_a_date_to_come_is_a_wait_until_then() -> None:
    wait_s = retry_after_s({"retry-after": formatdate(time.time() + 90, usegmt=True)})

    assert wait_s is not None
    assert 60 <= wait_s <= 90


@given(st.text())
def test_no_header_breaks_it(text: str) -> None:
    wait_s = retry_after_s({"retry-after": text})

    assert wait_s is None or wait_s >= 0


@pytest.mark.parametrize("key", ["q8\n", "q8\r\nX: 1", " q8", "q8 ", "q8é", "q8\x00", "q8\ud800"])
def test_a_key_that_no_header_can_carry_is_refused_unquoted(key: str) -> None:
    with pytest.raises(LlmError) as caught:
        check_key(key, "someone", "m")

    assert caught.value.kind == "auth"
    assert (caught.value.provider, caught.value.model) == ("someone", "m")
    assert "q8" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "sk-a_b.c/d+e=", "with blank"])
def test_other_keys_pass(key: str) -> None:
    check_key(key, "someone")
