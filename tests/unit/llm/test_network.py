from collections.abc import Iterator

import pytest

from ryecore.llm import (
    LlmError,
    LlmRequest,
    Message,
    allow_model_requests,
    check_model_requests_allowed,
    refuse_model_requests,
)
from ryecore.testing import ScriptedProvider


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with allow_model_requests():
        yield


def test_requests_are_allowed_until_somebody_refuses_them() -> None:
    check_model_requests_allowed("openai")

    refuse_model_requests()

    with pytest.raises(LlmError, match="'openai' was asked") as caught:
        check_model_requests_allowed("openai", "gpt-5")
    assert (caught.value.kind, caught.value.retryable) == ("bad_request", False)
    assert (caught.value.provider, caught.value.model) == ("openai", "gpt-5")
    assert "ScriptedProvider" in caught.value.next_step


def test_a_refusal_ends_with_its_block_even_when_the_block_fails() -> None:
    with pytest.raises(KeyError), refuse_model_requests():
        raise KeyError

    check_model_requests_allowed("openai")


def test_blocks_nest() -> None:
    with refuse_model_requests():
        with allow_model_requests():
            check_model_requests_allowed("openai")
        with pytest.raises(LlmError):
            check_model_requests_allowed("openai")


@pytest.mark.anyio
async def test_a_scripted_model_asks_nobody_and_is_not_refused() -> None:
    request = LlmRequest("any", (Message.user("Hello."),))

    with refuse_model_requests():
        answer = await ScriptedProvider(["Hi."]).generate(request, key="")

    assert answer.text == "Hi."
