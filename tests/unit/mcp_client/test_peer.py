"""What is told of a server: the end of what it said, and none of its secrets."""

import pytest

from ryecore.mcp_client.peer import Peer

SECRET = "hunter2-hunter2-hunter2"


@pytest.mark.parametrize("after", range(4070, 4100))
def test_no_part_of_a_secret_is_told_wherever_it_was_cut(after: int):
    peer = Peer("test", {SECRET})
    peer.add_output("begin " + SECRET[:9])
    peer.add_output(SECRET[9:] + "x" * after)
    told = str(peer.error("ended"))
    assert "hunter2" not in told
    assert "2-h" not in told
    assert told.count("x") >= 4060
    assert len(told) < 4200
