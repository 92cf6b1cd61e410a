"""What each vendor is asked to cache, and the prefix that a conversation keeps."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ryecore.llm import (
    Capabilities,
    LlmRequest,
    MemoryMediaStore,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)

Written = dict[str, Any]

_TOOLS = tuple(
    ToolSpec(name, f"Does {name}.", {"type": "object", "properties": {name: {"type": "string"}}})
    for name in ("look_up", "now", "add")
)
_PICTURE = b"\x89PNG\r\n\x1a\n"


def _anthropic(request: LlmRequest, media: MemoryMediaStore) -> Written:
    from ryecore.providers.anthropic.request import parameters_of

    return parameters_of(request, "anthropic", media)


def _chat(request: LlmRequest, media: MemoryMediaStore) -> Written:
    from ryecore.providers.openai.request import ChatApi

    api = ChatApi(prompt_cache=True)
    return api.body(request, _contents(request, media), "openai", _can(), stream=True)


def _responses(request: LlmRequest, media: MemoryMediaStore) -> Written:
    from ryecore.providers.openai.request import ResponsesApi

    api = ResponsesApi(prompt_cache=True)
    return api.body(request, _contents(request, media), "openai", _can(), stream=True)


def _gemini(request: LlmRequest, media: MemoryMediaStore) -> Written:
    from ryecore.providers.gemini.request import config_of, contents_of

    contents = contents_of(request, "gemini", media)
    return {
        "contents": [one.model_dump(mode="json", exclude_none=True) for one in contents],
        "config": config_of(request).model_dump(mode="json", exclude_none=True),
    }


def _can() -> Capabilities:
    return Capabilities(reasoning=True, input_media=frozenset({"image/*"}))


def _contents(request: LlmRequest, media: MemoryMediaStore) -> dict[str, bytes]:
    from ryecore.providers.openai.media import media_of

    return {one.handle: media.read(one) for one in media_of(request)}


def _turns(media: MemoryMediaStore, origin: str, opaque: str) -> Iterator[tuple[Message, ...]]:
    """Yield a conversation as each of its requests has it."""
    picture = media.put(_PICTURE, "image/png")
    grows: list[Message] = [Message.user("What is it?", picture)]
    yield tuple(grows)
    for turn in range(3):
        calls = [ToolCallPart(f"call_{turn}_{n}", "look_up", '{"b": 1, "a": 2}') for n in range(30)]
        thought = ReasoningPart("Let me see.", origin, opaque)
        results = [ToolResultPart(one.call_id, one.name, (TextPart("It is."),)) for one in calls]
        grows += (Message.assistant(thought, "I look.", *calls), Message.results(*results))
        yield tuple(grows)
    grows += (Message.assistant("A tide."), Message.user("And now?"))
    yield tuple(grows)


def _without_marks(written: Any) -> Any:
    if isinstance(written, dict):
        return {key: _without_marks(one) for key, one in written.items() if key != "cache_control"}
    if isinstance(written, list):
        return [_without_marks(one) for one in written]
    return written


@pytest.mark.parametrize(
    ("write", "growing", "origin", "opaque"),
    [
        (_anthropic, "messages", "anthropic", "c2lnbmVk"),
        (_chat, "messages", "openai", ""),
        (_responses, "input", "openai", '{"id": "rs_1", "encrypted_content": "x"}'),
        (_gemini, "contents", "gemini", "c2lnbmVk"),
    ],
)
def test_each_request_begins_with_the_bytes_of_the_one_before(
    write: Callable[[LlmRequest, MemoryMediaStore], Written],
    growing: str,
    origin: str,
    opaque: str,
) -> None:
    media = MemoryMediaStore()
    before: tuple[bytes, bytes] | None = None
    for messages in _turns(media, origin, opaque):
        request = LlmRequest("gpt-5.6", messages, system="Be brief.", tools=_TOOLS, reasoning="low")
        written = _without_marks(write(request, media))
        grown = json.dumps(written.pop(growing)).encode().removesuffix(b"]")
        around = json.dumps(written).encode()
        if before is not None:
            assert around == before[0]
            assert grown.startswith(before[1])
            assert len(grown) > len(before[1])
        before = around, grown


def _marked(written: Any, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the place and the content of each mark for the cache."""
    if isinstance(written, dict):
        if "cache_control" in written:
            yield path.lstrip("."), written["cache_control"]
        for key, one in written.items():
            yield from _marked(one, f"{path}.{key}")
    elif isinstance(written, list):
        for at, one in enumerate(written):
            yield from _marked(one, f"{path}.{at}")


def test_anthropic_gets_marks_at_the_ends_of_tools_system_and_both_conversations() -> None:
    media = MemoryMediaStore()
    ends: list[list[str]] = []
    for messages in _turns(media, "anthropic", "c2lnbmVk"):
        request = LlmRequest("claude-opus-5", messages, system="Be brief.", tools=_TOOLS)
        marks = dict(_marked(_anthropic(request, media)))
        assert all(mark == {"type": "ephemeral"} for mark in marks.values())
        assert {"tools.2", "system.0"} < marks.keys()
        ends.append(sorted(marks.keys() - {"tools.2", "system.0"}))

    # The end of each request is marked again by the next one, however many blocks lie between.
    assert ends == [
        ["messages.0.content.1"],
        ["messages.0.content.1", "messages.2.content.29"],
        ["messages.2.content.29", "messages.4.content.29"],
        ["messages.4.content.29", "messages.6.content.29"],
        ["messages.6.content.29", "messages.8.content.0"],
    ]


def test_anthropic_keeps_a_conversation_for_an_hour_on_request() -> None:
    request = LlmRequest("claude-opus-5", (Message.user("Hello?"),), cache="1h")
    marks = [mark for _, mark in _marked(_anthropic(request, MemoryMediaStore()))]
    assert marks == [{"type": "ephemeral", "ttl": "1h"}]


def test_anthropic_gets_no_mark_where_no_caching_is_wanted_or_a_block_takes_none() -> None:
    media = MemoryMediaStore()
    asked = (Message.user("Hello?"),)
    plain = LlmRequest("claude-opus-5", asked, system="Be brief.", tools=_TOOLS, cache=None)
    assert [*_marked(_anthropic(plain, media))] == []
    assert _anthropic(plain, media)["system"] == "Be brief."

    blank = LlmRequest("claude-opus-5", asked, system=" ")
    assert [place for place, _ in _marked(_anthropic(blank, media))] == ["messages.0.content.0"]
    thought = Message.assistant("So:", ReasoningPart("Hm.", "anthropic", "c2lnbmVk"))
    begun = LlmRequest("claude-opus-5", (*asked, thought))
    places = [place for place, _ in _marked(_anthropic(begun, media))]
    assert places == ["messages.0.content.0", "messages.1.content.0"]
    only = Message.assistant(ReasoningPart("Hm.", "anthropic", "c2lnbmVk"))
    assert [*_marked(_anthropic(LlmRequest("claude-opus-5", (only,)), media))] == []


@pytest.mark.parametrize("write", [_chat, _responses])
@pytest.mark.parametrize(
    ("model", "cache", "options"),
    [
        ("gpt-5.6-sol", "5m", None),  # it keeps them for 30 minutes by itself
        ("gpt-5.6-sol", "1h", {"ttl": "12h"}),
        ("gpt-5.6-sol", None, {"mode": "explicit"}),
        ("ft:gpt-6.1-terra:acme", "1h", {"ttl": "12h"}),
        ("gpt-5", "1h", None),
        ("gpt-5.5", None, None),
        ("gpt-4.1", None, None),
        ("o3-mini", "1h", None),
    ],
)
def test_openai_is_asked_for_what_a_model_lets_choose(
    write: Callable[[LlmRequest, MemoryMediaStore], Written],
    model: str,
    cache: Any,
    options: object,
) -> None:
    request = LlmRequest(model, (Message.user("Hello?"),), system="Be brief.", cache=cache)
    written = write(request, MemoryMediaStore())
    assert written.get("prompt_cache_options") == options
    assert ("prompt_cache_key" in written) is (cache is not None)
    assert "prompt_cache_retention" not in written


def test_the_conversations_of_one_agent_share_a_key_at_openai() -> None:
    def key(text: str, **settings: Any) -> str | None:
        request = LlmRequest("gpt-5.6", (Message.user(text),), **settings)
        found: str | None = _responses(request, MemoryMediaStore()).get("prompt_cache_key")
        return found

    one = key("Hello?", system="Be brief.", tools=_TOOLS)
    assert one is not None
    assert key("And you?", system="Be brief.", tools=_TOOLS) == one
    assert key("Hello?", system="Be long.", tools=_TOOLS) != one
    assert key("Hello?", system="Be brief.") != one
    assert key("Hello?") is None  # nothing is shared


def test_a_compatible_server_gets_none_of_openais_parameters_unless_it_takes_them() -> None:
    from ryecore.providers.openai import OpenAIProvider
    from ryecore.providers.openai.request import ChatApi

    def takes(**settings: Any) -> bool:
        api = OpenAIProvider(api="chat", **settings)._api
        assert isinstance(api, ChatApi)
        return api.prompt_cache

    assert takes()
    assert not takes(base_url="http://localhost:1/v1")
    assert takes(base_url="http://localhost:1/v1", prompt_cache=True)
    assert not takes(prompt_cache=False)
