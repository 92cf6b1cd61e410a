import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from ryecore.llm import (
    Capabilities,
    LlmError,
    LlmProvider,
    LlmRequest,
    MediaPart,
    MediaProvider,
    MediaRequest,
    MediaResult,
    MemoryMediaStore,
    Message,
    TextPart,
    Usage,
    allow_model_requests,
    refuse_model_requests,
)
from ryecore.testing.conformance import HttpResponse, Script, WireServer
from tests.adapters import make_openai
from tests.conformance.openai_wire import ChatWire

if TYPE_CHECKING:
    from ryecore.providers.openai import OpenAIProvider

pytestmark = pytest.mark.anyio
HELLO = LlmRequest("m", (Message.user("Hello?"),))
FINE = Script((TextPart("Fine."),))
DRAW = MediaRequest("gpt-image-1", "A tide.", count=2)


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer() as one:
        yield one


@pytest.fixture
async def provider(server: WireServer, anyio_backend: str) -> "AsyncIterator[OpenAIProvider]":
    async with make_openai(base_url=f"{server.base_url}/v1") as one:
        yield one


def replied(data: object, status: int = 200, **headers: str) -> HttpResponse:
    return HttpResponse((json.dumps(data).encode(),), status, headers)


def answer(text: str) -> HttpResponse:
    return HttpResponse((ChatWire().whole(Script((TextPart(text),))),))


def images(*contents: bytes, **more: Any) -> HttpResponse:
    return replied(
        {"created": 1, "data": [{"b64_json": base64.b64encode(one).decode()} for one in contents]}
        | more
    )


async def failed(provider: "OpenAIProvider", request: LlmRequest = HELLO, **more: Any) -> LlmError:
    with pytest.raises(LlmError) as caught:
        await provider.generate(request, **({"key": "k"} | more))
    return caught.value


async def test_it_is_a_provider_of_texts_and_images(provider: "OpenAIProvider") -> None:
    assert isinstance(provider, LlmProvider)
    assert isinstance(provider, MediaProvider)


async def test_the_format_goes_with_the_address() -> None:
    assert "/responses" in repr(make_openai())
    assert "/chat/completions" in repr(make_openai(base_url="http://localhost/v1"))
    assert "/chat/completions" in repr(make_openai(api="chat"))
    assert "/responses" in repr(make_openai(base_url="http://localhost/v1", api="responses"))


async def test_what_a_model_can_do_is_the_hosts_to_say() -> None:
    can = Capabilities(tools=False)

    assert make_openai(capabilities=can).capabilities("gpt-4o") is can
    told = make_openai(capabilities=lambda model: Capabilities(context_tokens=len(model)))
    assert told.capabilities("four").context_tokens == 4
    assert make_openai(base_url="http://x/v1").capabilities("gpt-3.5").takes("image/png")


async def test_the_switch_refuses_before_anything_is_sent(
    provider: "OpenAIProvider", server: WireServer
) -> None:
    server.answer(answer("Fine."))
    with refuse_model_requests():
        error = await failed(provider)
        with pytest.raises(LlmError, match="refused here"):
            await anext(aiter(provider.stream(HELLO, key="k")))
        with pytest.raises(LlmError, match="refused here"):
            await provider.generate_media(DRAW, key="k", media=MemoryMediaStore())
        assert not server.raw
        assert (error.kind, error.provider, error.model) == ("bad_request", "openai", "m")
        assert "ScriptedProvider" in str(error)
        with allow_model_requests():
            assert (await provider.generate(HELLO, key="k")).text == "Fine."


@pytest.mark.parametrize("key", ["sk-secret\n", "sk-sécret", " sk-secret", "sk\r\nX-Evil: 1"])
async def test_a_key_that_no_header_can_carry_is_told_without_showing_it(
    provider: "OpenAIProvider", server: WireServer, key: str
) -> None:
    error = await failed(provider, key=key)

    assert error.kind == "auth"
    assert key.strip() not in str(error)
    assert not server.raw


async def test_media_need_a_store_that_has_them(provider: "OpenAIProvider") -> None:
    lost = LlmRequest("m", (Message.user(MediaPart("media://0", "image/png", 1)),))

    assert "no media store" in str(await failed(provider, lost))
    missing = await failed(provider, lost, media=MemoryMediaStore())
    assert (missing.kind, missing.model) == ("bad_request", "m")


async def test_a_quota_that_is_spent_is_not_tried_again(
    provider: "OpenAIProvider", server: WireServer
) -> None:
    error = {"message": "You exceeded your current quota.", "type": "insufficient_quota"}
    server.answer(replied({"error": error | {"code": "insufficient_quota"}}, 429))

    raised = await failed(provider)

    assert (raised.kind, raised.status, raised.retryable) == ("auth", 429, False)
    assert "credit" in raised.next_step


async def test_what_servers_say_in_other_forms_is_told(
    provider: "OpenAIProvider", server: WireServer
) -> None:
    for body in ({"detail": "No such tide."}, {"detail": [{"msg": "No such tide."}]},
                 {"error": "No such tide."}, {"message": "No such tide."}):  # fmt: skip
        server.answer(replied(body, 422))
        error = await failed(provider)
        assert "No such tide." in error.message
        assert error.kind == "bad_request"


async def test_a_redirect_is_not_followed(provider: "OpenAIProvider", server: WireServer) -> None:
    server.answer(replied({}, 307, Location=f"{server.base_url}/v1/elsewhere"))

    error = await failed(provider)

    assert (error.kind, error.status) == ("bad_request", 307)
    assert len(server.raw) == 1


async def test_no_session_is_kept_between_calls(
    provider: "OpenAIProvider", server: WireServer
) -> None:
    server.answer(HttpResponse(answer("Fine.").body, headers={"Set-Cookie": "session=1; Path=/"}))

    for _ in range(2):
        await provider.generate(HELLO, key="k")

    assert "cookie" not in server.raw[-1].headers


async def test_the_hosts_headers_travel_and_may_authorise(server: WireServer) -> None:
    server.answer(answer("Fine."))
    headers = {"authorization": "Basic abc", "X-Title": "tides"}
    async with make_openai(base_url=f"{server.base_url}/v1", headers=headers) as provider:
        await provider.generate(HELLO, key="")
        await provider.generate(HELLO, key="k")

    first, second = (one.headers for one in server.raw)
    assert (first["authorization"], first["x-title"]) == ("Basic abc", "tides")
    assert second["authorization"] == "Bearer k"


async def test_a_proxy_is_used_where_the_host_names_one() -> None:
    asked: list[bytes] = []

    async def refuse(client: SocketStream) -> None:
        async with client:
            asked.append(await client.receive())
            await client.send(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
        proxy = f"http://127.0.0.1:{port}"
        async with (
            anyio.create_task_group() as tasks,
            make_openai(base_url="http://model.invalid/v1", proxy=proxy) as provider,
        ):
            tasks.start_soon(listener.serve, refuse)
            assert (await failed(provider)).status == 502
            tasks.cancel_scope.cancel()

    assert asked[0].startswith(b"POST http://model.invalid/v1/chat/completions ")


async def test_a_server_that_counts_nothing_but_says_that_it_is_done_has_answered(
    provider: "OpenAIProvider", server: WireServer
) -> None:
    body = ChatWire().stream(Script((TextPart("Fine."),), usage=None))
    server.answer(HttpResponse(tuple(body), media_type="text/event-stream"))

    chunks = [chunk async for chunk in provider.stream(HELLO, key="k")]

    assert len(chunks) == 2


async def test_one_connection_serves_many_calls(
    provider: "OpenAIProvider", server: WireServer
) -> None:
    body = ChatWire().stream(Script((TextPart("Fine."),)))
    server.answer(HttpResponse(tuple(body), media_type="text/event-stream"))

    for _ in range(3):
        assert [chunk async for chunk in provider.stream(HELLO, key="k")]
        assert server.connections == 1


async def test_images_are_made_and_kept(provider: "OpenAIProvider", server: WireServer) -> None:
    details = {"image_tokens": 0, "text_tokens": 7}
    usage = {"input_tokens": 7, "output_tokens": 90, "total_tokens": 97}
    usage |= {"input_tokens_details": details}
    server.answer(images(b"one", b"two", output_format="webp", usage=usage))
    store = MemoryMediaStore()

    made = await provider.generate_media(DRAW, key="k", media=store)

    assert isinstance(made, MediaResult)
    assert [store.read(part) for part in made.media] == [b"one", b"two"]
    assert {part.media_type for part in made.media} == {"image/webp"}
    assert (made.usage, made.model) == (Usage(7, 90), "gpt-image-1")
    (raw,) = server.raw
    assert (raw.path, raw.headers["authorization"]) == ("/v1/images/generations", "Bearer k")
    assert json.loads(raw.body) == {"model": "gpt-image-1", "prompt": "A tide.", "n": 2}


async def test_images_are_made_from_others(provider: "OpenAIProvider", server: WireServer) -> None:
    server.answer(images(b"edited"))
    store = MemoryMediaStore()
    picture = store.put(b"original", "image/png", "tide.png")

    made = await provider.generate_media(
        MediaRequest("gpt-image-1", "Bluer.", "image/jpeg", inputs=(picture,)), key="k", media=store
    )

    assert isinstance(made, MediaResult)
    (raw,) = server.raw
    assert raw.path == "/v1/images/edits"
    for sent in (b"original", b"tide.png", b"Bluer.", b"jpeg"):
        assert sent in raw.body


async def test_other_models_are_told_to_send_the_image_itself(
    provider: "OpenAIProvider", server: WireServer
) -> None:
    server.answer(images(b"one"))

    await provider.generate_media(
        MediaRequest("flux", "A tide.", "image/png"), key="k", media=MemoryMediaStore()
    )

    sent = json.loads(server.raw[0].body)
    assert sent["response_format"] == "b64_json"
    assert "output_format" not in sent


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (replied({"created": 1, "data": [{"url": "https://x"}]}), "unavailable"),
        (replied({"created": 1, "data": []}), "unavailable"),
        (replied({"created": 1, "data": [{"b64_json": "?"}]}), "unavailable"),
        (replied("hello"), "unavailable"),
        (replied({"error": {"code": "moderation_blocked", "message": "No."}}, 400),
         "content_filter"),
        (replied({"error": {"message": "k is wrong"}}, 401), "auth"),
    ],
)  # fmt: skip
async def test_images_that_do_not_come_are_an_error(
    provider: "OpenAIProvider", server: WireServer, reply: HttpResponse, kind: str
) -> None:
    server.answer(reply)

    with pytest.raises(LlmError) as caught:
        await provider.generate_media(DRAW, key="k", media=MemoryMediaStore())

    assert (caught.value.kind, caught.value.model) == (kind, "gpt-image-1")


async def test_only_images_are_made(provider: "OpenAIProvider", server: WireServer) -> None:
    store = MemoryMediaStore()
    for media_type in ("video/mp4", "image/svg+xml"):
        request = MediaRequest("gpt-image-1", "A tide.", media_type)
        with pytest.raises(LlmError) as caught:
            await provider.generate_media(request, key="k", media=store)
        assert caught.value.kind == "bad_request"
    with pytest.raises(LlmError, match="no jobs"):
        await provider.poll_media("job_1", key="k", media=store)
    assert not server.raw


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['openai'] = None\n"
        "try: import ryecore.providers.openai\n"
        "except Exception as error: print(type(error).__name__, error)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.startswith("MissingExtra")
    assert "pip install 'ryecore[openai]'" in done.stdout
