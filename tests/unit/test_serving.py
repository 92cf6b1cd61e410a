"""What listens for HTTP requests."""

import socket

from ryecore.serving import listen


def test_an_answer_in_two_parts_does_not_wait_for_an_acknowledgement() -> None:
    with listen("127.0.0.1", 0) as listening:
        caller = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        with caller, accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
