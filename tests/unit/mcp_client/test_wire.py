"""The frames between the host and a kept connector."""

import json
import socket

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import ConfigError, McpError, McpToolChanged, RyeError
from ryecore.mcp_client.wire import error_document, load_error, receive_frame, send_frame

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for one in (ours, theirs):
        one.setblocking(False)
    return ours, theirs


async def test_a_large_frame_arrives_whole(anyio_backend: str):
    ours, theirs = pair()
    payload = bytes(range(256)) * 20_000
    with ours, theirs:
        async with anyio.create_task_group() as both:
            both.start_soon(send_frame, ours, b"D", payload)
            assert await receive_frame(theirs, len(payload)) == (b"D", payload)


async def test_frames_follow_one_another(anyio_backend: str):
    ours, theirs = pair()
    with theirs:
        with ours:
            await send_frame(ours, b"B")
            await send_frame(ours, b"D", b"x")
        assert await receive_frame(theirs, 10) == (b"B", b"")
        assert await receive_frame(theirs, 10) == (b"D", b"x")
        assert await receive_frame(theirs, 10) is None


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0" * 7 + b"\5D", b"\0" * 7 + b"\5Dab"])
async def test_a_frame_that_was_cut_off_is_none(sent: bytes, anyio_backend: str):
    ours, theirs = pair()
    with theirs:
        with ours:
            ours.send(sent) if sent else None
        assert await receive_frame(theirs, 10) is None


async def test_a_frame_that_is_too_large_is_refused_before_it_is_read(anyio_backend: str):
    ours, theirs = pair()
    with ours, theirs:
        ours.send((2**40).to_bytes(8, "big") + b"D")
        with pytest.raises(McpError, match="1099511627776"):
            await receive_frame(theirs, 10)


@pytest.mark.parametrize(
    "error",
    [
        McpError("a", next_step="b", server="s"),
        McpToolChanged("a", next_step="b", server="s", tool="t", difference=("-x", "+y")),
        ConfigError("a", next_step="b"),
    ],
)
def test_an_error_is_the_same_on_the_other_side(error: RyeError):
    there = load_error(json.dumps(error_document(error)).encode())
    assert type(there) is type(error)
    assert (there.message, there.next_step) == (error.message, error.next_step)
    for name in ("server", "tool", "difference"):
        assert getattr(there, name, None) == getattr(error, name, None)


@given(st.sampled_from(["input", "nonsense", ""]), st.text(max_size=20))
def test_an_error_that_nobody_knows_is_an_mcp_error(kind: str, message: str):
    payload = json.dumps({"error_type": kind, "message": message}).encode()
    assert load_error(payload).message == message
