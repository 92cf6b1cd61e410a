"""Which interpreter runs a tool, and which never does."""

import os
from pathlib import Path

import anyio
import pytest

from ryecore.chain.interpreters import Interpreters
from ryecore.errors import InterpreterNotFound
from ryecore.items.evidence import Evidence
from tests.house import House, events


def program(path: Path, says: str = "", *, mode: int = 0o755) -> Path:
    """A program that prints its own path and what it was given to say."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "{says or path}"\n')
    path.chmod(mode)
    return path


def using(house: House, **wish: object) -> str:
    """A tool whose runtime asks for an interpreter."""
    interpreter = {"type": "local_binary", "var": "RYE_X", "binary": "xlang"} | wish
    house.yaml(
        "a/runtime",
        config={"command": "${RYE_X}"},
        env_config={"interpreter": interpreter},
    )
    return house.yaml("a/tool", executor_id="a/runtime")


def said(house: House, ref: str, **opened: object) -> str:
    return str(house.execute(ref, opened=opened).data["stdout"].strip())


def on_path(house: House, name: str) -> Path:
    folder = house.root / "bin"
    if str(folder) not in house.environ["PATH"]:
        house.environ["PATH"] = f"{folder}:{house.environ['PATH']}"
    return program(folder / name)


TRUSTING = {"trust_project_interpreters": True}
LOCAL = {"search_paths": [".venv/bin", ".tools"]}


def test_a_local_binary_is_found_in_the_first_search_path(house):
    ref = using(house, **LOCAL)
    second = program(house.project / ".tools/xlang")
    assert said(house, ref, **TRUSTING) == str(second)
    first = program(house.project / ".venv/bin/xlang")
    assert said(house, ref, **TRUSTING) == str(first)


@pytest.mark.parametrize("root", ["{anchor_path}", "tools", ""])
def test_a_search_root_that_leads_nowhere_is_not_looked_for_in_the_hosts_folder(
    house, monkeypatch, root
):
    monkeypatch.chdir(house.root)
    program(house.root / root / "bin/xlang", "planted")
    found = on_path(house, "xlang9")
    wish = {"search_roots": [root], "search_paths": ["bin"], "fallback": "xlang9"}
    assert said(house, using(house, **wish)) == str(found)


def test_search_roots_stand_in_the_place_of_the_project(house):
    program(house.project / "bin/xlang")
    root = house.root / "root"
    wish = {"search_roots": [str(root)], "search_paths": ["bin"], "fallback": "xlang9"}
    fallback = on_path(house, "xlang9")
    assert said(house, using(house, **wish), **TRUSTING) == str(fallback)
    found = program(root / "bin/xlang")
    assert said(house, using(house, **wish), **TRUSTING) == str(found)
    none = {"search_roots": ["{anchor_path}"], "search_paths": ["bin"]}
    assert said(house, using(house, **none), **TRUSTING) == str(house.project / "bin/xlang")


def test_a_candidate_name_is_taken_where_the_first_is_missing(house):
    ref = using(house, **LOCAL, candidates=["xlang3"])
    found = program(house.project / ".venv/bin/xlang3")
    assert said(house, ref, **TRUSTING) == str(found)


def test_the_fallback_comes_from_the_path(house):
    found = on_path(house, "xlang9")
    done = house.execute(using(house, **LOCAL, fallback="xlang9"), trace=True)
    event = events(done.trace, "find_interpreter")[0]
    assert (event["path"], event["how"]) == (str(found), "fallback")


def test_a_preset_variable_wins(house):
    program(house.project / ".venv/bin/xlang")
    house.environ["RYE_X"] = str(program(house.root / "elsewhere/xlang"))
    assert said(house, using(house, **LOCAL), **TRUSTING) == house.environ["RYE_X"]


def test_a_preset_that_is_no_program_is_passed_over_and_listed(house):
    house.environ["RYE_X"] = str(house.root / "gone")
    with pytest.raises(InterpreterNotFound) as refusal:
        house.execute(using(house, **LOCAL))
    assert f"{house.root / 'gone'} (not there)" in refusal.value.tried


def test_a_dotenv_cannot_preset_an_interpreter(house):
    evil = program(house.root / "evil", "evil")
    (house.project / ".env").write_text(f"RYE_X={evil}\nXLANG={evil}\n")
    fallback = on_path(house, "xlang9")
    assert said(house, using(house, **LOCAL, fallback="xlang9")) == str(fallback)
    # also where the runtime's variable doesn't look like one of ours
    house.yaml(
        "a/runtime",
        config={"command": "${XLANG}"},
        env_config={"interpreter": {"type": "system_binary", "var": "XLANG", "binary": "xlang9"}},
    )
    assert said(house, "tool:a/tool") == str(fallback)


def test_a_system_binary_comes_from_the_path_alone(house):
    program(house.project / ".venv/bin/xlang")
    found = on_path(house, "xlang")
    assert said(house, using(house, type="system_binary", **LOCAL), **TRUSTING) == str(found)


def test_a_command_prints_the_path(house):
    found = program(house.root / "managed/xlang")
    manager = house.root / "bin/manage"
    on_path(house, "manage")
    manager.write_text(f'#!/bin/sh\necho "{found}"\n')
    ref = using(house, type="command", resolve_cmd=["manage", "which", "xlang"])
    assert said(house, ref) == str(found)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_command_is_asked_in_the_project_only_where_that_is_trusted(house, is_trusted):
    found, folder = on_path(house, "real"), house.root / "asked"
    on_path(house, "manage").write_text(f'#!/bin/sh\npwd > "{folder}"\necho "{found}"\n')
    ref = using(house, type="command", resolve_cmd=["manage"])
    assert said(house, ref, trust_project_interpreters=is_trusted) == str(found)
    assert folder.read_text().strip() == str(house.project if is_trusted else house.user)


def test_a_command_that_is_asked_for_the_path_gets_no_credentials(house):
    found = on_path(house, "real")
    on_path(house, "manage").write_text(f'#!/bin/sh\n[ -z "$GITHUB_TOKEN" ] && echo {found}\n')
    house.environ["GITHUB_TOKEN"] = "hunter2"
    assert said(house, using(house, type="command", resolve_cmd=["manage"])) == str(found)


@pytest.mark.parametrize("script", ["exit 1", "echo relative/path", "echo", "kill -9 $$"])
def test_a_command_that_prints_no_path_leaves_the_fallback(house, script):
    on_path(house, "manage").write_text(f"#!/bin/sh\n{script}\n")
    fallback = on_path(house, "xlang9")
    ref = using(house, type="command", resolve_cmd=["manage"], fallback="xlang9")
    assert said(house, ref) == str(fallback)


def test_a_command_that_hangs_is_ended(house, monkeypatch):
    import ryecore.chain.interpreters as module

    monkeypatch.setattr(module, "_RESOLVE_TIMEOUT_S", 0.05)
    on_path(house, "manage").write_text("#!/bin/sh\nsleep 600\n")
    with pytest.raises(InterpreterNotFound, match="manage"):
        house.execute(using(house, type="command", resolve_cmd=["manage"]))


def test_a_missing_interpreter_lists_what_was_tried_and_what_to_do(house):
    program(house.project / ".venv/bin/xlang", mode=0o644)
    (house.project / ".tools/xlang").mkdir(parents=True)
    with pytest.raises(InterpreterNotFound) as refusal:
        house.execute(using(house, **LOCAL, fallback="xlang9"), trace=True)
    assert refusal.value.tried == (
        f"{house.project}/.venv/bin/xlang (not executable)",
        f"{house.project}/.tools/xlang (not a file)",
        "xlang9 (not on the PATH)",
    )
    assert "RYE_X" in refusal.value.next_step
    assert refusal.value.trace[-1]["failed"]


def test_an_interpreter_inside_the_project_is_passed_over_and_the_trace_says_so(house):
    evil = program(house.project / ".venv/bin/xlang", "evil")
    fallback = on_path(house, "xlang9")
    done = house.execute(using(house, **LOCAL, fallback="xlang9"), trace=True)
    assert done.data["stdout"].strip() == str(fallback)
    event = events(done.trace, "find_interpreter")[0]
    assert event["passed_over"] == [f"{evil}: inside the project, which is not trusted"]
    assert "passed over" in str(done)


def test_only_an_untrusted_interpreter_is_an_error_that_names_trust_project(house):
    program(house.project / ".venv/bin/xlang", "evil")
    with pytest.raises(InterpreterNotFound, match="rye trust-project"):
        house.execute(using(house, **LOCAL))


def test_trusting_the_project_makes_it_run_and_taking_that_back_stops_it(house):
    mine = program(house.project / ".venv/bin/xlang")
    fallback = on_path(house, "xlang9")
    ref = using(house, **LOCAL, fallback="xlang9")
    with house.sync() as rye:
        assert rye.execute(ref).data["stdout"].strip() == str(fallback)
        trust = rye.trust_project()
        assert rye.execute(ref).data["stdout"].strip() == str(mine)
        trust.unlink()
        assert rye.execute(ref).data["stdout"].strip() == str(fallback)


def test_a_project_cannot_trust_itself(house):
    program(house.project / ".venv/bin/xlang", "evil")
    with house.sync() as rye:
        trust = rye.trust_project()
    below = trust.relative_to(house.user)
    (house.project / below).parent.mkdir(parents=True)
    trust.rename(house.project / below)
    with pytest.raises(InterpreterNotFound):
        house.execute(using(house, **LOCAL))


def test_an_unsigned_word_of_trust_counts_for_nothing(house):
    program(house.project / ".venv/bin/xlang", "evil")
    with house.sync() as rye:
        trust = rye.trust_project()
    trust.write_text("".join(trust.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(InterpreterNotFound):
        house.execute(using(house, **LOCAL))


def test_the_path_does_not_lead_into_an_untrusted_project(house):
    program(house.project / "bin/xlang9", "evil")
    house.environ["PATH"] = f"{house.project}/bin:{house.environ['PATH']}"
    with pytest.raises(InterpreterNotFound, match="trust-project"):
        house.execute(using(house, **LOCAL, fallback="xlang9"))


@pytest.mark.parametrize(
    "wish", [{"fallback": "xlang9"}, {"type": "system_binary", "binary": "xlang9"}]
)
def test_behind_an_untrusted_projects_folder_the_path_is_searched_on(house, wish):
    """As where the project's own virtual environment is activated."""
    found = on_path(house, "xlang9")
    program(house.project / ".venv/bin/xlang9", "evil")
    house.environ["PATH"] = f"{house.project}/.venv/bin:{house.environ['PATH']}"
    ref = using(house, **wish)
    assert said(house, ref) == str(found)
    assert said(house, ref, **TRUSTING) == "evil"


def test_a_runtimes_bare_command_is_searched_on_behind_an_untrusted_projects_folder(house):
    found = on_path(house, "xlang9")
    program(house.project / ".venv/bin/xlang9", "evil")
    house.environ["PATH"] = f"{house.project}/.venv/bin:{house.environ['PATH']}"
    house.yaml("a/runtime", config={"command": "xlang9"})
    ref = house.yaml("a/tool", executor_id="a/runtime")
    assert said(house, ref) == str(found)
    assert said(house, ref, **TRUSTING) == "evil"


def test_a_runtimes_command_does_not_lead_into_an_untrusted_project(house):
    program(house.project / "bin/evil", "evil")
    house.yaml("a/runtime", config={"command": "{project_path}/bin/evil"})
    ref = house.yaml("a/tool", executor_id="a/runtime")
    with pytest.raises(InterpreterNotFound, match="trust-project"):
        house.execute(ref)
    assert said(house, ref, **TRUSTING) == "evil"


def test_a_clones_virtual_environment_never_runs(house):
    marker = house.root / "marker"
    for name in ("python", "python3"):
        path = program(house.project / ".venv/bin" / name)
        path.write_text(f"#!/bin/sh\ntouch {marker}\n")
    ref = house.python("a/t", "def execute(params, project):\n    return 1")
    assert house.execute(ref).data == 1
    assert not marker.exists()


@pytest.mark.parametrize("change", ["mode", "file", "link", "removal"])
def test_a_program_that_may_run_is_looked_at_anew_once_it_changed(house, change):
    found = program(house.root / "bin/xlang")
    interpreters = Interpreters(house.project, lambda _: False)
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
        found.symlink_to(program(house.project / "bin/xlang"))

    assert not interpreters.may_run_again(str(found))


def test_neither_a_folder_nor_what_lies_inside_a_trusted_project_may_run_unseen(house):
    inside = program(house.project / "bin/xlang")
    interpreters = Interpreters(house.project, lambda _: True)
    for path in (str(house.root), str(inside)):
        assert interpreters.may_run(path, Evidence())
        assert not interpreters.may_run_again(path)


def test_a_system_tool_runs_on_the_librarys_own_interpreter(house):
    import sys

    house.environ["RYE_PYTHON"] = str(program(house.root / "other/python", "evil"))
    done = house.execute("tool:rye/file-system/list", {}, dry_run=True)
    assert done.plan.command == sys.executable


@pytest.mark.anyio
async def test_calls_that_each_ask_a_command_do_not_wait_for_one_another(house):
    found, meet, role = program(house.root / "managed/xlang"), house.root / "meet", "$PWD/role"
    os.mkfifo(meet)
    on_path(house, "manage").write_text(
        # The first call goes alone; of the next two, each needs the other one to end.
        f'#!/bin/sh\nif mkdir "{role}0" 2>/dev/null; then :\n'
        f'elif mkdir "{role}1" 2>/dev/null; then read -r line <"{meet}"\n'
        f'else echo go >"{meet}"; fi\necho "{found}"\n'
    )
    ref = using(house, type="command", resolve_cmd=["manage"])
    async with house.open() as rye:
        assert (await rye.execute(ref)).success
        async with anyio.create_task_group() as calls:
            calls.start_soon(rye.execute, ref)
            calls.start_soon(rye.execute, ref)
