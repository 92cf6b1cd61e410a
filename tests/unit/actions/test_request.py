"""Both tables of the execution matrix, cell by cell."""

from itertools import product
from typing import Any

import pytest

from ryecore.actions.request import ExecuteRequest, check_cell, check_modes
from ryecore.errors import InputError, UnsupportedExecution

FORK_TOOL = "Tools can't be forked"
INLINE_REMOTE = "Directives need thread=fork on a remote target"
NOTHING_TO_DETACH = "there is nothing to detach"

# (kind, target, thread, async): what refuses it; None where it is allowed.
CELLS = {
    ("directive", "local", "inline", False): None,
    ("directive", "local", "fork", False): None,
    ("directive", "remote", "fork", False): None,
    ("directive", "remote", "inline", False): INLINE_REMOTE,
    ("directive", "local", "inline", True): NOTHING_TO_DETACH,
    ("directive", "local", "fork", True): None,
    ("directive", "remote", "fork", True): None,
    ("directive", "remote", "inline", True): INLINE_REMOTE,
    ("tool", "local", "inline", False): None,
    ("tool", "local", "fork", False): FORK_TOOL,
    ("tool", "remote", "fork", False): FORK_TOOL,
    ("tool", "remote", "inline", False): None,
    ("tool", "local", "inline", True): None,
    ("tool", "local", "fork", True): FORK_TOOL,
    ("tool", "remote", "fork", True): FORK_TOOL,
    ("tool", "remote", "inline", True): None,
}
RUNS = {cell for cell, refusal in CELLS.items() if refusal is None}


def request(**modes: Any) -> ExecuteRequest:
    return ExecuteRequest("tool:acme/x", **modes)


def test_the_table_is_whole():
    cells = product(("directive", "tool"), ("local", "remote"), ("inline", "fork"), (False, True))
    assert set(cells) == set(CELLS)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join(map(str, cell)))
@pytest.mark.parametrize("name", ["", ":gpu"])
def test_each_cell_runs_or_is_refused(cell, name):
    kind, target, thread, is_async = cell
    target += name if target == "remote" else ""
    refusal = CELLS[cell]
    if cell in RUNS:
        check_cell(kind, target, thread, async_=is_async)
    else:
        with pytest.raises(UnsupportedExecution, match=refusal):
            check_cell(kind, target, thread, async_=is_async)


@pytest.mark.parametrize("kind", ["knowledge", "config"])
@pytest.mark.parametrize("target", ["local", "remote"])
@pytest.mark.parametrize("thread", ["inline", "fork"])
@pytest.mark.parametrize("is_async", [False, True])
def test_other_kinds_are_not_executed(kind, target, thread, is_async):
    with pytest.raises(UnsupportedExecution, match=f"A {kind} item can't be executed") as refused:
        check_cell(kind, target, thread, async_=is_async)
    assert f"rye fetch {kind}:" in refused.value.next_step


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join(map(str, cell)))
def test_a_dry_run_is_refused_where_nothing_could_be_validated_here_and_now(cell):
    _kind, target, thread, is_async = cell
    refusal = (
        "dry_run with async"
        if is_async
        else "dry_run with a remote"
        if target == "remote"
        else None
    )
    if refusal is None:
        check_modes(request(target=target, thread=thread, async_=is_async, dry_run=True))
    else:
        with pytest.raises(UnsupportedExecution, match=refusal):
            check_modes(request(target=target, thread=thread, async_=is_async, dry_run=True))


def test_each_reason_has_a_text_and_a_next_step_of_its_own():
    messages, steps = {}, {}
    for cell in set(CELLS) - RUNS:
        kind, target, thread, is_async = cell
        with pytest.raises(InputError) as refusal:
            check_cell(kind, target, thread, async_=is_async)
        reason = CELLS[cell]
        messages.setdefault(reason, set()).add(refusal.value.message)
        steps.setdefault(reason, set()).add(refusal.value.next_step)
    assert all(len(texts) == 1 for texts in messages.values())
    assert len(set.union(*messages.values())) == len(messages)
    assert all("" not in texts for texts in steps.values())


@pytest.mark.parametrize(
    ("modes", "refusal"),
    [
        ({"thread": "spawn"}, "Unknown thread mode 'spawn'"),
        ({"thread": ""}, "Unknown thread mode"),
        ({"target": "remote:"}, "has no name"),
        ({"target": "moon"}, "Unknown target 'moon'"),
        ({"target": "remote:a b"}, "Unknown target"),
        ({"target": "remote:gpu\n"}, "Unknown target"),
        ({"target": ""}, "Unknown target"),
        ({"dry_run": True, "async_": True}, "dry_run with async"),
        ({"dry_run": True, "target": "remote"}, "dry_run with a remote target"),
        ({"dry_run": True, "target": "remote:gpu"}, "dry_run with a remote target"),
        ({"target": None}, "Unknown target"),
        ({"thread": None}, "Unknown thread mode"),
        ({"target": 3}, "Unknown target"),
    ],
)
def test_modes_that_exclude_each_other_or_are_unknown_are_refused(modes, refusal):
    with pytest.raises(UnsupportedExecution, match=refusal):
        check_modes(request(**modes))


@pytest.mark.parametrize("target", ["local", "remote", "remote:gpu", "remote:gpu-2_b"])
@pytest.mark.parametrize("thread", ["inline", "fork"])
def test_known_modes_pass(target, thread):
    check_modes(request(target=target, thread=thread))


@pytest.mark.parametrize("flag", ["dry_run", "async_"])
def test_a_flag_that_is_no_boolean_is_refused(flag: str) -> None:
    with pytest.raises(UnsupportedExecution, match="must be true or false"):
        check_modes(request(**{flag: "false"}))
