"""What a type checker sees of fakes and adapters. Checked by mypy and pyright, never run."""

from typing import assert_type

from ryecore.llm import (
    Capabilities,
    LlmProvider,
    LlmRequest,
    MediaProvider,
    refuse_model_requests,
)
from ryecore.providers.openai import OpenAIProvider
from ryecore.testing import (
    FunctionProvider,
    ScriptedMediaProvider,
    ScriptedProvider,
    Turn,
    call,
    fail,
    hang,
    say,
    think,
)


async def answered(request: LlmRequest) -> str:
    return request.system


providers: list[LlmProvider] = [
    ScriptedProvider(["text", say("more") + hang(), fail("auth"), answered]),
    ScriptedProvider([lambda request: say(request.model)]),
    FunctionProvider(answered),
    ScriptedMediaProvider([]),
    OpenAIProvider(api="chat", capabilities=Capabilities(tools=False)),
    OpenAIProvider(capabilities=lambda model: Capabilities()),
]
media_providers: list[MediaProvider] = [ScriptedMediaProvider([]), OpenAIProvider()]

assert_type(think("Hm.") + call("add", {"a": 1}), Turn)

fail("no-such-kind")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
OpenAIProvider(api="soap")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

with refuse_model_requests():
    pass
