"""rye threads approvals, approve and deny; and the question of rye execute at a terminal."""

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attrs import evolve

from ryecore.state.approvals import ThreadApproval
from ryecore.state.waiting import run_blocking
from tests.thread_deps import DEPS, furnish
from tests.unit.cli.conftest import Run, read_all, start
from tests.unit.threads.thread_tree import ThreadTree
from tests.workspace import Workspace

ORDER = ["execute", "directive:acme/order", "--thread", "fork", "--deps", DEPS]
ASKED = ThreadApproval("", "t", "c1", "order", {"item": "tea"}, "This tool always asks.", "digest")


@pytest.fixture
def threads(workspace: Workspace) -> Iterator[ThreadTree]:
    """A thread `t` that runs in this process."""
    threads = ThreadTree(workspace)
    threads.start("t")
    yield threads
    threads.store.close()


def ask(threads: ThreadTree, **changed: object) -> ThreadApproval:
    return run_blocking(threads.store.approvals.request(evolve(ASKED, **changed)))


def test_calls_that_wait_are_listed_with_what_is_approved(run: Run, threads: ThreadTree) -> None:
    assert run("threads", "approvals").out == "No call waits for an approval.\n"
    assert run("threads", "approvals", "--json").json == {"status": "success", "approvals": []}
    one = ask(threads)
    assert run("threads", "approvals").out.splitlines() == [
        f"{one.id}  order  t",
        "  This tool always asks.",
        "  {",
        '    "item": "tea"',
        "  }",
    ]
    assert run("threads", "approvals", "--json").json["approvals"] == [one.to_dict()]
    for command in (["list"], ["show", "t"], ["tree"], ["tree", "t"]):
        assert "for approval of order: rye threads approve t\n" in run("threads", *command).out
        shown = run("threads", *command, "--json").json
        shown = shown["threads"][0] if "threads" in shown else shown
        assert (shown["status"], shown["approvals"]) == ("running", [one.to_dict()])


@pytest.mark.parametrize("command", ["approve", "deny"])
def test_who_answers_a_thread_that_died_is_told_to_resume_it(
    run: Run, threads: ThreadTree, command: str
) -> None:
    ask(threads)
    threads.end("t", "error")
    done = run("threads", command, "t")
    assert done.out.splitlines()[1:] == ["  it has ended; next: rye threads resume t"]


@pytest.mark.parametrize("command", ["approve", "deny"])
def test_a_call_is_answered_once(run: Run, threads: ThreadTree, command: str) -> None:
    one = ask(threads)
    done = run("threads", command, "t", "--reason", "as agreed", "--json")
    assert done.code == 0, done.err
    assert done.json["approval"] == {
        **one.to_dict(),
        "approved": command == "approve",
        "answer_reason": "as agreed",
    }
    for again in (["approve", "t"], ["deny", "t", "--call", one.id]):
        refused = run("threads", *again)
        assert refused.code == 2
        assert "waits for an approval" in refused.err
        assert "rye threads approvals" in refused.err
    assert run("threads", "list").out.count("\n") == 1  # it waits no more


def test_what_was_answered_is_said(run: Run, threads: ThreadTree) -> None:
    ask(threads)
    assert run("threads", "approve", "t").out == "approved  order  t\n"
    ask(threads, call_id="c2", arguments={"item": "gin"})
    assert run("threads", "deny", "t").out == "denied  order  t\n"


def test_a_wrong_id_is_refused(run: Run, threads: ThreadTree) -> None:
    ask(threads)
    done = run("threads", "approve", "none")
    assert (done.code, "There is no thread 'none'" in done.err) == (2, True)
    done = run("threads", "deny", "t", "--call", "c7", "--json")
    assert (done.code, done.json["error_type"]) == (2, "input")
    assert "No call c7 of the thread t waits" in done.json["error"]


def test_of_several_calls_one_is_named(run: Run, threads: ThreadTree) -> None:
    one, other = ask(threads), ask(threads, call_id="c2", tool_name="refund")
    assert "waits for approval of 2 calls: rye threads approvals" in run("threads", "list").out
    assert f"rye threads approve t --call {other.id}" in run("threads", "show", "t").out
    done = run("threads", "approve", "t")
    assert done.code == 2
    assert f"{one.id} (order), {other.id} (refund)" in done.err
    assert "--call ID" in done.err
    assert run("threads", "approve", "t", "--call", "c2").code == 0
    assert run("threads", "approve", "t", "--call", one.id).code == 0


def test_a_hostile_call_steers_no_terminal(run: Run, threads: ThreadTree) -> None:
    bad = "\x1b[2J\n\u202eapproved  safe"
    ask(threads, tool_name=f"a{bad}", reason=f"b{bad}", arguments={f"c{bad}": f"d{bad}"})
    ask(threads, tool_name=f"e{bad}", call_id="c2")
    for command in (["approvals"], ["list"], ["show", "t"], ["tree"]):
        shown = run("threads", *command).out
        assert not {"\x1b", "\u202e"} & set(shown)
        assert "\napproved" not in shown
    refused = run("threads", "approve", "t").err
    assert not {"\x1b", "\u202e"} & set(refused)
    answered = run("threads", "approve", "t", "--call", "c2").out
    assert (answered.count("\n"), {"\x1b", "\u202e"} & set(answered)) == (1, set())


# rye execute


@pytest.fixture
def furnished(workspace: Workspace) -> None:
    furnish(workspace)


def ordered(workspace: Workspace) -> str:
    path = workspace.project / "ordered"
    return path.read_text() if path.exists() else ""


def test_without_a_terminal_the_command_is_printed(
    workspace: Workspace, run: Run, furnished: None
) -> None:
    with start(workspace, *ORDER) as process:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        said, _, command = line.strip().partition(": ")
        assert said == "? waits for approval of order"
        assert ordered(workspace) == ""
        assert run(*command.split()[1:]).code == 0
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert b"It is done." in out
    assert ordered(workspace) == "tea\n"


class Terminal:
    """A command at a terminal, which a person reads and types at."""

    def __init__(self, leader: int, process: "subprocess.Popen[bytes]") -> None:
        self.shown = ""
        self.process = process
        self._leader = leader

    def until(self, text: str) -> str:
        """Read until a text is shown, without what steers the terminal."""
        while text not in self.plain():
            self.shown += os.read(self._leader, 4096).decode(errors="replace")
        return self.plain()

    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.shown)

    def type(self, text: str) -> None:
        os.write(self._leader, text.encode())

    def end(self) -> str:
        self.shown += read_all(self._leader)
        self.process.wait(60)
        return self.plain()


@contextmanager
def at_terminal(workspace: Workspace, *more: str, term: str = "xterm") -> Iterator[Terminal]:
    leader, follower = pty.openpty()
    with start(
        workspace, *ORDER, *more, stdin=follower, stdout=follower, stderr=follower,
        env={"TERM": term},
    ) as process:  # fmt: skip
        os.close(follower)
        try:
            yield Terminal(leader, process)
        finally:
            process.kill()
            os.close(leader)


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_person_at_the_terminal_is_asked(
    workspace: Workspace, furnished: None, term: str
) -> None:
    with at_terminal(workspace, term=term) as terminal:
        terminal.type("y\n")  # before the question: answers nothing
        asked = terminal.until("approve? [y/n] ")
        for part in ("order", "This tool always asks.", '"item": "tea"'):
            assert part in asked
        terminal.type("what?\n")
        terminal.until("approve? [y/n] what?\r\n  approve? [y/n] ")
        assert ordered(workspace) == ""
        terminal.type("y\n")
        shown = terminal.end()
        assert terminal.process.returncode == 0
    assert "It is done." in shown
    assert ordered(workspace) == "tea\n"


def test_nothing_is_drawn_over_a_question_and_a_denial_says_why(
    workspace: Workspace, run: Run, furnished: None
) -> None:
    with at_terminal(workspace) as terminal:
        terminal.until("approve? [y/n] ")
        at = len(terminal.shown)
        terminal.type("n\n")
        terminal.until("why not?")
        during = terminal.shown[at:]
        terminal.type("too dear\n")
        shown = terminal.end()
    assert "\x1b[" not in during
    assert terminal.shown[:at].rfind("\x1b[?25h") > terminal.shown[:at].rfind("\x1b[?25l")
    assert terminal.shown.endswith("\x1b[?25h") or "It is done." in shown
    assert ordered(workspace) == ""
    (thread,) = run("threads", "list", "--all", "--json").json["threads"]
    transcript = run("threads", "transcript", thread["thread_id"]).out
    assert "was not approved: too dear" in transcript


def test_another_process_may_answer_meanwhile(
    workspace: Workspace, run: Run, furnished: None
) -> None:
    with at_terminal(workspace) as terminal:
        terminal.until("approve? [y/n] ")
        (one,) = run("threads", "approvals", "--json").json["approvals"]
        assert run("threads", "approve", one["thread_id"]).code == 0
        shown = terminal.end()
        assert terminal.process.returncode == 0
    assert "It was answered elsewhere" in shown
    assert ordered(workspace) == "tea\n"


def test_the_end_of_the_input_leaves_the_call_to_others(
    workspace: Workspace, run: Run, furnished: None
) -> None:
    with at_terminal(workspace) as terminal:
        terminal.until("approve? [y/n] ")
        terminal.type("\x04")
        shown = terminal.until("--call")
        (one,) = run("threads", "approvals", "--json").json["approvals"]
        assert f"rye threads approve {one['thread_id']} --call" in shown
        assert run("threads", "deny", one["thread_id"]).code == 0
        terminal.end()
    assert ordered(workspace) == ""


def test_an_interrupt_during_the_question_stops_the_thread(
    workspace: Workspace, run: Run, furnished: None
) -> None:
    with at_terminal(workspace) as terminal:
        terminal.until("approve? [y/n] ")
        terminal.process.send_signal(2)
        terminal.end()
        assert terminal.process.returncode == 1
    (thread,) = run("threads", "list", "--all", "--json").json["threads"]
    assert thread["status"] == "cancelled"
    assert ordered(workspace) == ""


@pytest.mark.parametrize("command", ["approve", "deny"])
def test_an_answer_survives_kill_9_of_the_process_that_waits(
    workspace: Workspace, run: Run, furnished: None, command: str
) -> None:
    with start(workspace, *ORDER) as process:
        assert process.stderr is not None
        assert b"waits for approval of order" in process.stderr.readline()
        (one,) = run("threads", "approvals", "--json").json["approvals"]
        process.kill()
        process.communicate(timeout=60)
    thread_id = one["thread_id"]
    assert run("threads", command, thread_id).code == 0
    done = run("threads", "resume", thread_id, "--deps", DEPS, "--json")
    assert (done.code, done.json["result"], done.err) == (0, "It is done.", "")  # nobody is asked
    assert ordered(workspace) == ("tea\n" if command == "approve" else "")
    assert run("threads", "verify", done.json["thread_id"]).code == 0
    assert run("threads", command, thread_id).code == 2  # an answer is given once
