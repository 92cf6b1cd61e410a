"""What `rye node work` reads of its options."""

import pytest

from ryecore.cli.work import read_place, read_rate
from ryecore.errors import InputError
from tests.unit.cli.conftest import Run
from tests.workspace import Workspace


@pytest.mark.parametrize(
    ("text", "rate"), [("100/60s", (100, 60.0)), ("5/0.5s", (5, 0.5)), (None, (None, 1.0))]
)
def test_a_rate_is_a_number_of_runs_and_a_period(
    text: str | None, rate: tuple[int | None, float]
) -> None:
    assert read_rate(text) == rate


@pytest.mark.parametrize("text", ["100", "0/1s", "1/0s", "1/1", "1/1m", "-1/1s", "1/1s "])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="isn't a rate"):
        read_rate(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [("127.0.0.1:9464", ("127.0.0.1", 9464)), ("[::1]:0", ("::1", 0)), ("box:80", ("box", 80))],
)
def test_a_place_is_a_host_and_a_port(text: str, place: tuple[str, int]) -> None:
    assert read_place(text) == place


@pytest.mark.parametrize("text", ["9464", ":9464", "a:", "a:b", "a:70000", "a:-1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="isn't an address"):
        read_place(text)


@pytest.mark.parametrize("name", ["", "a b", "-x", "_dbos_internal_queue", "q" * 65])
def test_a_worker_takes_no_queue_that_no_remote_can_name(name: str, run: Run) -> None:
    told = run("node", "work", "--queue", name, RYE_STATE="postgresql://db.example/agents")
    assert told.code == 2
    assert "can't be the name of a queue" in told.err


def test_a_time_to_end_is_not_negative(run: Run) -> None:
    told = run("node", "work", "--grace", "-1", RYE_STATE="postgresql://db.example/agents")
    assert told.code == 2
    assert "-1" in told.err


@pytest.mark.parametrize("command", ["status", "metrics"])
def test_a_cluster_without_a_state_that_machines_share_is_refused(
    command: str, run: Run, workspace: Workspace
) -> None:
    told = run("cluster", command)
    assert told.code == 2
    assert not workspace.path("state").exists()  # a read makes nothing
    assert "--state" not in told.err  # it has no such option
    assert "Name a state that machines share: RYE_STATE," in told.err
