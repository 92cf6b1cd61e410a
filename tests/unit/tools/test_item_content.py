"""Content blocks of an item's result, as a model gets them."""

import base64
from typing import Any

import pytest

from ryecore.errors import StoreError
from ryecore.llm import MediaPart, MemoryMediaStore
from ryecore.tools.item_content import for_model, has_blocks

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "


def data(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_images_audio_and_embedded_files_become_media() -> None:
    store = MemoryMediaStore()
    embedded = {"uri": "notes://a", "mimeType": "application/pdf", "blob": data(b"%PDF-1.7")}
    result = {
        "success": True,
        "content": [
            {"type": "text", "text": "Here."},
            {"type": "image", "data": data(PNG), "mimeType": "image/gif"},
            {"type": "audio", "data": data(WAV), "mimeType": "audio/wav"},
            {"type": "resource", "resource": embedded},
            {"type": "resource_link", "uri": "notes://b", "name": "b"},
        ],
    }
    shown = for_model(result, store)["content"]
    image, audio = shown[1]["data"], shown[2]["data"]
    assert isinstance(image, MediaPart)
    assert image.media_type == "image/png"  # what it is, not what the server says
    assert store.read(image) == PNG
    assert audio.media_type == "audio/wav"
    assert shown[3]["resource"]["blob"].media_type == "application/pdf"
    assert (shown[0], shown[4]) == (result["content"][0], result["content"][4])  # type: ignore[index]


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"data": data(PNG), "mimeType": "image/png"}, "[image/png, 28 bytes]"),
        ({"data": "not base64!", "mimeType": "image/png"}, "[data that isn't base64]"),
        ({"data": data(b"MZ"), "mimeType": "application/x-msdownload"}, "bytes]"),
        ({"data": data(b"x"), "mimeType": "image/" + "x" * 900}, "[application/octet-stream, 1 "),
    ],
)
def test_what_can_not_be_stored_is_said_by_type_and_size(block: dict[str, Any], said: str) -> None:
    shown = for_model({"content": [{"type": "image", **block}]}, None)["content"][0]["data"]
    assert said in shown


def test_a_store_that_fails_leaves_the_type_and_size() -> None:
    class Full(MemoryMediaStore):
        def put(self, content: bytes, media_type: str, name: str = "") -> MediaPart:
            raise StoreError("The disk is full.", next_step="Make room.")

    block = {"type": "image", "data": data(PNG), "mimeType": "image/png"}
    shown = for_model({"content": [block]}, Full())["content"][0]["data"]
    assert shown == "[image/png, 28 bytes]"


@pytest.mark.parametrize(
    ("texts", "structured"),
    [
        (['{"a": 1}'], {"a": 1}),
        (["hi"], {"result": "hi"}),
        (["[1, 2]"], {"result": [1, 2]}),
        (["x", "y"], {"result": ["x", "y"]}),
    ],
)
def test_text_that_repeats_the_structured_result_is_left_out(
    texts: list[str], structured: dict[str, Any]
) -> None:
    content = [{"type": "text", "text": text} for text in texts]
    shown = for_model({"content": content, "structured_content": structured}, None)
    assert shown == {"structured_content": structured}


def test_text_that_says_more_stays() -> None:
    content = [{"type": "text", "text": "About a"}]
    result = {"content": content, "structured_content": {"a": 1}}
    assert for_model(result, None) == result


@pytest.mark.parametrize("value", [None, "x", {"content": "text"}, {"content": ["x"]}, {"a": []}])
def test_other_results_have_no_blocks(value: object) -> None:
    assert not has_blocks(value)
