"""Each fault is one clear error with the next step, or a bounded result; nothing else happens."""

import json
import os
import re
import select
import subprocess
import sys

import pytest

from ryecore import SigningKey
from ryecore import errors as e
from ryecore.items.trust import render_trusted_key
from tests.matrix import IS_SOAK
from tests.workspace import BASH, Workspace, events

HEADER = f"# __executor_id__ = '{BASH}'\n"
RAN = HEADER + "touch ran\n"


def unsigned(workspace: Workspace) -> None:
    workspace.write("tools/a/t.sh", RAN, sign=False)


def changed(workspace: Workspace) -> None:
    path = workspace.write("tools/a/t.sh", RAN)
    path.write_text(path.read_text() + "echo more\n")


def moved(workspace: Workspace) -> None:
    path = workspace.write("tools/b/t.sh", RAN)
    workspace.path("tools/a").mkdir()
    path.rename(workspace.path("tools/a/t.sh"))


def renamed(workspace: Workspace) -> None:
    path = workspace.write("tools/a/other.sh", RAN)
    path.rename(workspace.path("tools/a/t.sh"))


def copied_from_user_space_to_another_kind(workspace: Workspace) -> None:
    path = workspace.write("config/a/t.toml", "x = 1\n")
    workspace.path("tools/a").mkdir(parents=True)
    path.rename(workspace.path("tools/a/t.toml"))


def back_dated(workspace: Workspace) -> None:
    path = workspace.write("tools/a/t.sh", RAN)
    text = re.sub(r"signed:\d{4}", "signed:2001", path.read_text(), count=1)
    path.write_text(text)


def with_trailing_text(workspace: Workspace) -> None:
    path = workspace.write("tools/a/t.sh", RAN)
    first, _, rest = path.read_text().partition("\n")
    path.write_text(f"{first} and more\n{rest}")


def by_an_untrusted_key(workspace: Workspace) -> None:
    workspace.write("tools/a/t.sh", RAN, key=SigningKey.generate())


def by_a_revoked_key(workspace: Workspace) -> None:
    key = SigningKey.generate()
    workspace.keys.trust(key.public, "Eve", revoked=True)
    workspace.write("tools/a/t.sh", RAN, key=key)


def by_a_key_that_only_the_project_vouches_for(workspace: Workspace) -> None:
    key = SigningKey.generate()
    vouch = render_trusted_key(key.public, "Eve", space="project", project=workspace.project)
    workspace.write(f"config/keys/trusted/{key.public.fingerprint}.toml", vouch.decode(), key=key)
    workspace.write("tools/a/t.sh", RAN, key=key)


def by_a_key_whose_vouch_names_no_space(workspace: Workspace) -> None:
    key = SigningKey.generate()
    pem = key.public.pem.decode()
    workspace.write(
        f"config/keys/trusted/{key.public.fingerprint}.toml",
        f'owner = "Eve"\n[public_key]\npem = """{pem}"""\n',
        key=key,
    )
    workspace.write("tools/a/t.sh", RAN, key=key)


def broken_yaml(workspace: Workspace) -> None:
    workspace.write("tools/a/t.yaml", "executor_id: a\nconfig: [\n")


def broken_python(workspace: Workspace) -> None:
    workspace.write("tools/a/t.py", "x = 1\ndef execute(:\n")


def linked_out_of_the_space(workspace: Workspace) -> None:
    outside = workspace.root / "t.sh"
    outside.write_text(RAN)
    workspace.path("tools/a").mkdir(parents=True)
    workspace.path("tools/a/t.sh").symlink_to(outside)


def two_files_of_one_stem(workspace: Workspace) -> None:
    workspace.write("tools/a/t.sh", RAN)
    workspace.write("tools/a/t.py", "")


def in_a_circle(workspace: Workspace) -> None:
    workspace.yaml("a/t", executor_id="a/u")
    workspace.yaml("a/u", executor_id="a/t")


def too_deep(workspace: Workspace) -> None:
    workspace.yaml("a/t", executor_id="a/r1")
    for number in range(1, 10):
        following = "rye/core/primitives/execute" if number == 9 else f"a/r{number + 1}"
        workspace.yaml(f"a/r{number}", executor_id=following)


def without_its_executor(workspace: Workspace) -> None:
    workspace.shell("a/t", "touch ran", executor_id="a/nowhere")


def a_system_tool_on_a_user_runtime(workspace: Workspace) -> None:
    workspace.shell("a/t", "touch ran", space="system", executor_id="a/r")
    workspace.yaml("a/r", space="user", config={"command": "/bin/true"})


def of_a_version_out_of_range(workspace: Workspace) -> None:
    workspace.shell("a/t", "touch ran", executor_id="a/r", version="1.0.0")
    workspace.yaml(
        "a/r", child_constraints={"min_version": "2.0.0"}, config={"command": "/bin/true"}
    )


def without_required_parameters(workspace: Workspace) -> None:
    schema = {"type": "object", "required": ["x", "y"]}
    workspace.shell("a/t", "touch ran", config_schema=schema)


def without_its_interpreter(workspace: Workspace) -> None:
    wish = {"type": "system_binary", "var": "RYE_X", "binary": "no-such-language"}
    workspace.yaml("a/r", env_config={"interpreter": wish}, config={"command": "${RYE_X}"})
    workspace.shell("a/t", "touch ran", executor_id="a/r")


def beside_a_changed_file(workspace: Workspace) -> None:
    workspace.write("tools/a/__init__.py", "")
    path = workspace.write("tools/a/lib/x.py", "X = 1\n")
    path.write_text(path.read_text() + "X = 2\n")
    workspace.python("a/t", "def execute(p, project):\n    open('ran', 'w')")


FAULTS = [
    (unsigned, e.UnsignedItem, r"t\.sh is not signed"),
    (changed, e.ContentChanged, r"t\.sh was changed after"),
    (moved, e.BadSignature, "moved, renamed or back-dated"),
    (renamed, e.BadSignature, "moved, renamed or back-dated"),
    (copied_from_user_space_to_another_kind, e.BadSignature, "moved"),
    (back_dated, e.BadSignature, "back-dated"),
    (with_trailing_text, e.MalformedSignature, "signature line"),
    (by_an_untrusted_key, e.UntrustedKey, "not trusted"),
    (by_a_revoked_key, e.RevokedKey, "was revoked"),
    (by_a_key_that_only_the_project_vouches_for, e.UntrustedKey, "not signed by a key"),
    (by_a_key_whose_vouch_names_no_space, e.UntrustedKey, "without the name of a space"),
    (broken_yaml, e.MetadataError, r"t\.yaml, line \d: broken YAML"),
    (broken_python, e.MetadataError, r"t\.py, line 3: invalid Python"),
    (linked_out_of_the_space, e.InvalidItemId, "link that leaves"),
    (two_files_of_one_stem, e.AmbiguousItem, r"t\.py and .*t\.sh"),
    (in_a_circle, e.CircularDependency, "a/t -> a/u -> a/t"),
    (too_deep, e.ChainTooDeep, "more than 10"),
    (without_its_executor, e.ExecutorNotFound, "a/nowhere"),
    (a_system_tool_on_a_user_runtime, e.ChainError, "a/r"),
    (of_a_version_out_of_range, e.IncompatibleChain, "below 2.0.0"),
    (without_required_parameters, e.InvalidParameters, "x.*y"),
    (without_its_interpreter, e.InterpreterNotFound, "no-such-language"),
    (beside_a_changed_file, e.ContentChanged, r"x\.py was changed after"),
]


@pytest.mark.parametrize(("fault", "error", "message"), FAULTS, ids=lambda part: getattr(part, "__name__", ""))  # fmt: skip # noqa: E501
def test_each_fault_is_one_clear_error_with_the_next_step_and_nothing_ran(
    workspace, fault, error, message
):
    fault(workspace)
    with workspace.sync() as rye:
        for _ in range(2):  # no memory makes it pass the second time
            with pytest.raises(error) as refusal:
                rye.execute("tool:a/t", {}, trace=True)
    assert re.search(message, refusal.value.message)
    assert refusal.value.next_step
    assert refusal.value.item_id == "tool:a/t"
    assert refusal.value.trace[-1]["failed"]
    document = refusal.value.to_dict()
    assert document["status"] == "error"
    assert json.loads(json.dumps(document)) == document
    assert not (workspace.project / "ran").exists()


@pytest.mark.parametrize(
    "item_id", ["../t", "a/../t", "a.t", "/etc/t", "a\0t", "a/./t", "a//t", "~/t", "a t", "a\nt"]
)
def test_an_id_that_could_lead_elsewhere_is_refused(workspace, item_id):
    with pytest.raises(e.InvalidItemId) as refusal:
        workspace.execute(f"tool:{item_id}")
    assert "segments" in refusal.value.next_step


def test_a_dotenv_that_sets_ld_preload_has_it_dropped_and_the_trace_says_so(workspace):
    (workspace.project / ".env").write_text("LD_PRELOAD=/evil.so\nGIT_SSH_COMMAND=evil\nOK=1\n")
    done = workspace.execute(
        workspace.shell("a/t", "echo ${LD_PRELOAD-none} ${GIT_SSH_COMMAND-none} $OK"),
        opened={"allow_env": ["OK"]},
        trace=True,
    )
    assert done.data["stdout"] == "none none 1\n"
    assert events(done.trace, "resolve_env")[0]["dropped"] == ["GIT_SSH_COMMAND", "LD_PRELOAD"]


def ends(pid: int) -> bool:
    """Whether a process has ended, or does within 20 s."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(descriptor, "rb", buffering=0):
        readable, _, _ = select.select([descriptor], [], [], 20)
    return bool(readable)


# Hostile tools. Each is handled within its timeout, and what came out is kept.


def test_a_tool_that_writes_far_too_much_is_bounded_and_the_cut_is_counted(workspace):
    size = 1_000_000_000 if IS_SOAK else 100_000_000
    ref = workspace.shell("a/t", f"head -c {size} /dev/zero | tr '\\0' x")
    done = workspace.execute(ref)
    kept = done.data["stdout"]
    assert set(kept) == {"x"}
    assert len(kept) == 16 * 1024 * 1024
    assert done.to_dict()["metadata"]["stdout_bytes_cut"] == size - len(kept)
    assert "stdout bytes cut" in str(done)


def test_the_bound_may_be_set_by_signed_config(workspace):
    done = workspace.execute(workspace.shell("a/t", "seq 1000", config={"max_output_bytes": 10}))
    assert done.data["stdout"] == "1\n2\n3\n4\n5\n"


def test_a_grandchild_that_holds_the_pipes_does_not_hold_the_run(workspace):
    ref = workspace.shell("a/t", "sleep 600 & echo $!")
    done = workspace.execute(ref)
    assert done.success
    assert ends(done.data)


def test_a_tool_that_ignores_term_ends_and_what_it_wrote_is_kept(workspace):
    ref = workspace.shell(
        "a/t", 'trap "" TERM; echo begun; while :; do read -r -t 9 < <(sleep 9); done'
    )
    done = workspace.execute(ref, timeout_s=0.2)
    assert "within 0.2 s" in done.error
    assert done.data["stdout"] == "begun\n"


def test_fifty_megabytes_to_a_tool_that_reads_nothing(workspace):
    done = workspace.execute(workspace.shell("a/t", "echo done"), {"x": "x" * 50_000_000})
    assert done.data["stdout"] == "done\n"


def test_fifty_megabytes_in_while_as_many_come_out(workspace):
    done = workspace.execute(workspace.shell("a/t", "cat"), {"x": "x" * 50_000_000})
    assert done.success
    assert done.to_dict()["metadata"]["stdout_bytes_cut"] > 30_000_000


def test_invalid_utf8_is_kept_visibly(workspace):
    done = workspace.execute(workspace.shell("a/t", r"printf 'a\377b'; printf '\376' >&2"))
    assert done.data == {"stdout": "a\\xffb", "stderr": "\\xfe", "return_code": 0}


@pytest.mark.parametrize(
    ("printed", "data"),
    [
        ("[1, 2]", [1, 2]),
        ("3", 3),
        ('"text"', "text"),
        ("null", None),
        ("true", True),
        ('{"a": {"b": []}}', {"a": {"b": []}}),
        ("  [1]\n\n", [1]),
    ],
)
def test_one_json_document_of_any_type_is_the_data(workspace, printed, data):
    workspace.write("tools/a/out", printed, sign=False)
    done = workspace.execute(workspace.shell("a/t", f"cat {workspace.path('tools/a/out')}"))
    assert done.success
    assert done.data == data


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("exit 3", "code 3"),
        ("kill -9 $$", "signal 9"),
        ("kill -SEGV $$", "signal 11"),
        ("echo why >&2; exit 1", "why"),
        ("""echo '{"success": false, "error": "no"}'""", "no"),
        ("""echo '{"status": "error", "error": "no"}'""", "no"),
    ],
)
def test_a_tool_that_fails_is_a_failed_result_that_says_why(workspace, script, error):
    done = workspace.execute(workspace.shell("a/t", script))
    assert done.status == "error"
    assert error in done.error


def test_a_host_that_is_killed_leaves_no_tool_behind(workspace):
    os.mkfifo(workspace.project / "pipe")
    workspace.shell("a/t", "echo $$ > pipe; read -r < <(sleep 600)")
    program = (
        "import sys; from ryecore import SyncRye\n"
        "with SyncRye.open(sys.argv[1], user_space=sys.argv[2]) as rye: rye.execute('tool:a/t')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(workspace.project), str(workspace.user)],
        env=workspace.environ,
    ) as host:
        with (workspace.project / "pipe").open() as pipe:
            pid = int(pipe.readline())
        host.kill()
    assert ends(pid)


def test_a_full_disk_where_files_are_sealed_is_one_clear_error(workspace):
    ref = workspace.shell("a/t", "touch ran")
    cache = workspace.root / "cache"
    cache.write_text("not a folder")
    with pytest.raises(e.AnchorError) as refusal:
        workspace.execute(ref, opened={"cache_dir": cache})
    assert "cache_dir" in refusal.value.next_step
    assert not (workspace.project / "ran").exists()
