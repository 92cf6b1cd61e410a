"""Which interpreter runs a tool, and which never does."""

import os
import sys
from pathlib import Path

import anyio
import pytest

from ryecore.chain.interpreters import Interpreters
from ryecore.errors import InterpreterNotFound
from ryecore.lillux.witness import Evidence
from tests.workspace import Workspace, events


def program(path: Path, says: str = "", *, mode: int = 0o755) -> Path:
    """A program that prints its own path and what it was given to say."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "{says or path}"\n')
    path.chmod(mode)
    return path


def using(workspace: Workspace, **wish: object) -> str:
    """A tool whose runtime asks for an interpreter."""
    interpreter = {"type": "local_binary", "var": "RYE_X", "binary": "xlang"} | wish
    workspace.yaml(
        "a/runtime",
        config={"command": "${RYE_X}"},
        env_config={"interpreter": interpreter},
    )
    return workspace.yaml("a/tool", executor_id="a/runtime")


def said(workspace: Workspace, ref: str, **opened: object) -> str:
    return str(workspace.execute(ref, opened=opened).data["stdout"].strip())


def on_path(workspace: Workspace, name: str) -> Path:
    folder = workspace.root / "bin"
    if str(folder) not in workspace.environ["PATH"]:
        workspace.environ["PATH"] = f"{folder}:{workspace.environ['PATH']}"
    return program(folder / name)


TRUSTING = {"trust_project_interpreters": True}
LOCAL = {"search_paths": [".venv/bin", ".tools"]}


def test_a_local_binary_is_found_in_the_first_search_path(workspace):
    ref = using(workspace, **LOCAL)
    second = program(workspace.project / ".tools/xlang")
    assert said(workspace, ref, **TRUSTING) == str(second)
    first = program(workspace.project / ".venv/bin/xlang")
    assert said(workspace, ref, **TRUSTING) == str(first)


@pytest.mark.parametrize("root", ["{anchor_path}", "tools", ""])
def test_a_search_root_that_leads_nowhere_is_not_looked_for_in_the_hosts_folder(
    workspace, monkeypatch, root
):
    monkeypatch.chdir(workspace.root)
    program(workspace.root / root / "bin/xlang", "planted")
    found = on_path(workspace, "xlang9")
    wish = {"search_roots": [root], "search_paths": ["bin"], "fallback": "xlang9"}
    assert said(workspace, using(workspace, **wish)) == str(found)


def test_search_roots_stand_in_the_place_of_the_project(workspace):
    program(workspace.project / "bin/xlang")
    root = workspace.root / "root"
    wish = {"search_roots": [str(root)], "search_paths": ["bin"], "fallback": "xlang9"}
    fallback = on_path(workspace, "xlang9")
    assert said(workspace, using(workspace, **wish), **TRUSTING) == str(fallback)
    found = program(root / "bin/xlang")
    assert said(workspace, using(workspace, **wish), **TRUSTING) == str(found)
    none = {"search_roots": ["{anchor_path}"], "search_paths": ["bin"]}
    assert said(workspace, using(workspace, **none), **TRUSTING) == str(
        workspace.project / "bin/xlang"
    )


def test_a_candidate_name_is_taken_where_the_first_is_missing(workspace):
    ref = using(workspace, **LOCAL, candidates=["xlang3"])
    found = program(workspace.project / ".venv/bin/xlang3")
    assert said(workspace, ref, **TRUSTING) == str(found)


def test_the_fallback_comes_from_the_path(workspace):
    found = on_path(workspace, "xlang9")
    done = workspace.execute(using(workspace, **LOCAL, fallback="xlang9"), trace=True)
    event = events(done.trace, "find_interpreter")[0]
    assert (event["path"], event["how"]) == (str(found), "fallback")


@pytest.mark.parametrize("fallback", ["python", "python3"])
def test_the_hosts_own_python_comes_before_one_on_the_path(workspace, fallback):
    on_path(workspace, fallback)
    ref = using(workspace, **LOCAL, fallback=fallback)
    trace = workspace.execute(ref, dry_run=True, trace=True).trace
    event = next(each for each in trace if each.get("how"))
    assert (event["path"], event["how"]) == (sys.executable, "host")


def test_a_projects_trusted_python_comes_before_the_hosts(workspace):
    found = program(workspace.project / ".venv/bin/xlang")
    ref = using(workspace, **LOCAL, fallback="python3")
    assert said(workspace, ref, **TRUSTING) == str(found)


def test_a_preset_variable_wins(workspace):
    program(workspace.project / ".venv/bin/xlang")
    workspace.environ["RYE_X"] = str(program(workspace.root / "elsewhere/xlang"))
    assert said(workspace, using(workspace, **LOCAL), **TRUSTING) == workspace.environ["RYE_X"]


def test_a_preset_that_is_no_program_is_passed_over_and_listed(workspace):
    workspace.environ["RYE_X"] = str(workspace.root / "gone")
    with pytest.raises(InterpreterNotFound) as refusal:
        workspace.execute(using(workspace, **LOCAL))
    assert f"{workspace.root / 'gone'} (not there)" in refusal.value.tried


def test_the_trace_says_that_a_preset_is_no_program_where_another_runs(workspace):
    gone = workspace.environ["RYE_X"] = str(workspace.root / "gone")
    found = program(workspace.project / ".venv/bin/xlang")
    done = workspace.execute(using(workspace, **LOCAL), trace=True, opened=TRUSTING)
    (event,) = [one for one in done.trace if one["step"] == "find_interpreter"]
    assert str(found) in event.values()
    assert event["passed_over"] == [f"RYE_X={gone}: not there"]


def test_a_dotenv_cannot_preset_an_interpreter(workspace):
    evil = program(workspace.root / "evil", "evil")
    (workspace.project / ".env").write_text(f"RYE_X={evil}\nXLANG={evil}\n")
    fallback = on_path(workspace, "xlang9")
    assert said(workspace, using(workspace, **LOCAL, fallback="xlang9")) == str(fallback)
    # also where the runtime's variable doesn't look like one of ours
    workspace.yaml(
        "a/runtime",
        config={"command": "${XLANG}"},
        env_config={"interpreter": {"type": "system_binary", "var": "XLANG", "binary": "xlang9"}},
    )
    assert said(workspace, "tool:a/tool") == str(fallback)


def test_a_system_binary_comes_from_the_path_alone(workspace):
    program(workspace.project / ".venv/bin/xlang")
    found = on_path(workspace, "xlang")
    assert said(workspace, using(workspace, type="system_binary", **LOCAL), **TRUSTING) == str(
        found
    )


def test_a_command_prints_the_path(workspace):
    found = program(workspace.root / "managed/xlang")
    manager = workspace.root / "bin/manage"
    on_path(workspace, "manage")
    manager.write_text(f'#!/bin/sh\necho "{found}"\n')
    ref = using(workspace, type="command", resolve_cmd=["manage", "which", "xlang"])
    assert said(workspace, ref) == str(found)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_command_is_asked_in_the_project_only_where_that_is_trusted(workspace, is_trusted):
    found, folder = on_path(workspace, "real"), workspace.root / "asked"
    on_path(workspace, "manage").write_text(f'#!/bin/sh\npwd > "{folder}"\necho "{found}"\n')
    ref = using(workspace, type="command", resolve_cmd=["manage"])
    assert said(workspace, ref, trust_project_interpreters=is_trusted) == str(found)
    assert folder.read_text().strip() == str(workspace.project if is_trusted else workspace.user)


def test_a_command_that_is_asked_for_the_path_gets_no_credentials(workspace):
    found = on_path(workspace, "real")
    on_path(workspace, "manage").write_text(f'#!/bin/sh\n[ -z "$GITHUB_TOKEN" ] && echo {found}\n')
    workspace.environ["GITHUB_TOKEN"] = "hunter2"
    assert said(workspace, using(workspace, type="command", resolve_cmd=["manage"])) == str(found)


@pytest.mark.parametrize("script", ["exit 1", "echo relative/path", "echo", "kill -9 $$"])
def test_a_command_that_prints_no_path_leaves_the_fallback(workspace, script):
    on_path(workspace, "manage").write_text(f"#!/bin/sh\n{script}\n")
    fallback = on_path(workspace, "xlang9")
    ref = using(workspace, type="command", resolve_cmd=["manage"], fallback="xlang9")
    assert said(workspace, ref) == str(fallback)


def test_a_command_that_hangs_is_ended(workspace, monkeypatch):
    import ryecore.chain.interpreters as module

    monkeypatch.setattr(module, "_RESOLVE_TIMEOUT_S", 0.05)
    on_path(workspace, "manage").write_text("#!/bin/sh\nsleep 600\n")
    with pytest.raises(InterpreterNotFound, match="manage"):
        workspace.execute(using(workspace, type="command", resolve_cmd=["manage"]))


def test_a_missing_interpreter_lists_what_was_tried_and_what_to_do(workspace):
    program(workspace.project / ".venv/bin/xlang", mode=0o644)
    (workspace.project / ".tools/xlang").mkdir(parents=True)
    with pytest.raises(InterpreterNotFound) as refusal:
        workspace.execute(using(workspace, **LOCAL, fallback="xlang9"), trace=True)
    assert refusal.value.tried == (
        f"{workspace.project}/.venv/bin/xlang (not executable)",
        f"{workspace.project}/.tools/xlang (not a file)",
        "xlang9 (not on the PATH)",
    )
    assert "RYE_X" in refusal.value.next_step
    assert refusal.value.trace[-1]["failed"]


def test_an_interpreter_inside_the_project_is_passed_over_and_the_trace_says_so(workspace):
    evil = program(workspace.project / ".venv/bin/xlang", "evil")
    fallback = on_path(workspace, "xlang9")
    done = workspace.execute(using(workspace, **LOCAL, fallback="xlang9"), trace=True)
    assert done.data["stdout"].strip() == str(fallback)
    event = events(done.trace, "find_interpreter")[0]
    assert event["passed_over"] == [f"{evil}: inside the project, which is not trusted"]
    assert "passed over" in str(done)


def test_only_an_untrusted_interpreter_is_an_error_that_names_trust_project(workspace):
    program(workspace.project / ".venv/bin/xlang", "evil")
    with pytest.raises(InterpreterNotFound, match="rye trust-project"):
        workspace.execute(using(workspace, **LOCAL))


def test_trusting_the_project_makes_it_run_and_taking_that_back_stops_it(workspace):
    mine = program(workspace.project / ".venv/bin/xlang")
    fallback = on_path(workspace, "xlang9")
    ref = using(workspace, **LOCAL, fallback="xlang9")
    with workspace.sync() as rye:
        assert rye.execute(ref).data["stdout"].strip() == str(fallback)
        trust = rye.trust_project()
        assert rye.execute(ref).data["stdout"].strip() == str(mine)
        trust.unlink()
        assert rye.execute(ref).data["stdout"].strip() == str(fallback)


def test_a_project_cannot_trust_itself(workspace):
    program(workspace.project / ".venv/bin/xlang", "evil")
    with workspace.sync() as rye:
        trust = rye.trust_project()
    below = trust.relative_to(workspace.user)
    (workspace.project / below).parent.mkdir(parents=True)
    trust.rename(workspace.project / below)
    with pytest.raises(InterpreterNotFound):
        workspace.execute(using(workspace, **LOCAL))


def test_an_unsigned_word_of_trust_counts_for_nothing(workspace):
    program(workspace.project / ".venv/bin/xlang", "evil")
    with workspace.sync() as rye:
        trust = rye.trust_project()
    trust.write_text("".join(trust.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(InterpreterNotFound):
        workspace.execute(using(workspace, **LOCAL))


def test_the_path_does_not_lead_into_an_untrusted_project(workspace):
    program(workspace.project / "bin/xlang9", "evil")
    workspace.environ["PATH"] = f"{workspace.project}/bin:{workspace.environ['PATH']}"
    with pytest.raises(InterpreterNotFound, match="trust-project"):
        workspace.execute(using(workspace, **LOCAL, fallback="xlang9"))


@pytest.mark.parametrize(
    "wish", [{"fallback": "xlang9"}, {"type": "system_binary", "binary": "xlang9"}]
)
def test_behind_an_untrusted_projects_folder_the_path_is_searched_on(workspace, wish):
    """As where the project's own virtual environment is activated."""
    found = on_path(workspace, "xlang9")
    program(workspace.project / ".venv/bin/xlang9", "evil")
    workspace.environ["PATH"] = f"{workspace.project}/.venv/bin:{workspace.environ['PATH']}"
    ref = using(workspace, **wish)
    assert said(workspace, ref) == str(found)
    assert said(workspace, ref, **TRUSTING) == "evil"


def test_a_runtimes_bare_command_is_searched_on_behind_an_untrusted_projects_folder(workspace):
    found = on_path(workspace, "xlang9")
    program(workspace.project / ".venv/bin/xlang9", "evil")
    workspace.environ["PATH"] = f"{workspace.project}/.venv/bin:{workspace.environ['PATH']}"
    workspace.yaml("a/runtime", config={"command": "xlang9"})
    ref = workspace.yaml("a/tool", executor_id="a/runtime")
    assert said(workspace, ref) == str(found)
    assert said(workspace, ref, **TRUSTING) == "evil"


def test_a_runtimes_command_does_not_lead_into_an_untrusted_project(workspace):
    program(workspace.project / "bin/evil", "evil")
    workspace.yaml("a/runtime", config={"command": "{project_path}/bin/evil"})
    ref = workspace.yaml("a/tool", executor_id="a/runtime")
    with pytest.raises(InterpreterNotFound, match="trust-project"):
        workspace.execute(ref)
    assert said(workspace, ref, **TRUSTING) == "evil"


def test_a_clones_virtual_environment_never_runs(workspace):
    marker = workspace.root / "marker"
    for name in ("python", "python3"):
        path = program(workspace.project / ".venv/bin" / name)
        path.write_text(f"#!/bin/sh\ntouch {marker}\n")
    ref = workspace.python("a/t", "def execute(params, project):\n    return 1")
    assert workspace.execute(ref).data == 1
    assert not marker.exists()


@pytest.mark.parametrize("change", ["mode", "file", "link", "removal"])
def test_a_program_that_may_run_is_looked_at_anew_once_it_changed(workspace, change):
    found = program(workspace.root / "bin/xlang")
    interpreters = Interpreters(workspace.project, lambda _: False)
    assert not interpreters.may_run_again(str(found))
    assert interpreters.may_run(str(found), Evidence())
    assert interpreters.may_run_again(str(found))

    if change == "mode":
        found.chmod(0o644)
    else:
        found.unlink()
    if change == "file":
        program(found)
    if change == "link":
        found.symlink_to(program(workspace.project / "bin/xlang"))

    assert not interpreters.may_run_again(str(found))


def test_neither_a_folder_nor_what_lies_inside_a_trusted_project_may_run_unseen(workspace):
    inside = program(workspace.project / "bin/xlang")
    interpreters = Interpreters(workspace.project, lambda _: True)
    for path in (str(workspace.root), str(inside)):
        assert interpreters.may_run(path, Evidence())
        assert not interpreters.may_run_again(path)


def test_a_system_tool_runs_on_the_librarys_own_interpreter(workspace):
    import sys

    workspace.environ["RYE_PYTHON"] = str(program(workspace.root / "other/python", "evil"))
    done = workspace.execute("tool:rye/file-system/list", {}, dry_run=True)
    assert done.plan.command == sys.executable


@pytest.mark.anyio
async def test_calls_that_each_ask_a_command_do_not_wait_for_one_another(workspace):
    found, meet, role = (
        program(workspace.root / "managed/xlang"),
        workspace.root / "meet",
        "$PWD/role",
    )
    os.mkfifo(meet)
    on_path(workspace, "manage").write_text(
        # The first call goes alone; of the next two, each needs the other one to end.
        f'#!/bin/sh\nif mkdir "{role}0" 2>/dev/null; then :\n'
        f'elif mkdir "{role}1" 2>/dev/null; then read -r line <"{meet}"\n'
        f'else echo go >"{meet}"; fi\necho "{found}"\n'
    )
    ref = using(workspace, type="command", resolve_cmd=["manage"])
    async with workspace.open() as rye:
        assert (await rye.execute(ref)).success
        async with anyio.create_task_group() as calls:
            calls.start_soon(rye.execute, ref)
            calls.start_soon(rye.execute, ref)
