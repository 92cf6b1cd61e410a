"""What is told of a server: the end of what it said, and none of its secrets."""

import pytest

from ryecore.mcp_client.peer import MAX_MESSAGE_BYTES, Peer

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


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_no_part_of_a_secret_is_told_that_is_cut_where_a_call_begins_or_fails(cut: int):
    peer = Peer("test", {SECRET})
    peer.add_output("before\n" + SECRET[:cut])
    with peer.collecting() as output:
        peer.add_output(SECRET[cut:] + " begin " + SECRET[:cut])
        told = output.last_lines()
    assert told.startswith("*** begin ")
    assert "unter2" not in told
    assert cut < 6 or told == "*** begin ***"


@pytest.mark.parametrize("text", ["x", "\x1b[2J", "a\n"])
def test_a_long_error_of_a_server_is_cut_and_says_so(text: str):
    problem = f"doesn't list its tools: {text * (MAX_MESSAGE_BYTES // len(text))}"
    error = Peer("test").error(problem)
    assert len(str(error)) < 6000
    assert f"… {len(problem) - 5000} more characters." in error.message


def test_no_part_of_a_secret_stands_where_a_long_error_is_cut():
    for before in range(4970, 5003):
        error = Peer("test", {SECRET}).error("x" * before + SECRET + "y" * 9000)
        assert "hunter" not in str(error)


def test_every_error_of_a_server_has_a_next_step():
    peer = Peer("test")
    assert peer.error("answered badly").next_step
    peer.fail("ended with exit code 7", "Start it by hand.")
    peer.fail("closed its input", "Do something else.")
    assert peer.error(peer.problem).next_step == "Start it by hand."
    assert peer.error("was not ready", "Wait.").next_step == "Wait."
