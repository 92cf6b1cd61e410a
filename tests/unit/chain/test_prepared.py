"""A remembered chain is used again exactly as long as a fresh one would be the same.

Each test executes, changes something, and executes again in the same open Rye.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ryecore import SigningKey, SyncRye
from ryecore.errors import (
    AmbiguousItem,
    ConfigError,
    ContentChanged,
    InterpreterNotFound,
    ItemNotFound,
    MetadataError,
    RevokedKey,
    UnsignedItem,
    UntrustedKey,
)
from tests.workspace import BASH, Workspace

SAY = {"command": "/bin/echo", "args": ["runtime"]}


@pytest.fixture
def rye(workspace: Workspace) -> Iterator[SyncRye]:
    with workspace.sync() as opened:
        yield opened


@pytest.fixture
def said(rye: SyncRye) -> Callable[[str], str]:
    def say(ref: str = "tool:a/tool") -> str:
        return str(rye.execute(ref).data["stdout"].strip())

    return say


def twice(said: Callable[[str], str], ref: str = "tool:a/tool") -> str:
    """Execute twice, the second time from memory."""
    first = said(ref)
    assert said(ref) == first
    return first


def test_a_changed_and_signed_tool_is_noticed(workspace, said):
    workspace.shell("a/tool", "echo one")
    assert twice(said) == "one"
    workspace.shell("a/tool", "echo two")
    assert twice(said) == "two"


def test_a_changed_tool_is_refused(workspace, said):
    ref = workspace.shell("a/tool", "echo one")
    twice(said)
    path = workspace.path("tools/a/tool.sh")
    path.write_text(path.read_text().replace("one", "two"))
    with pytest.raises(ContentChanged):
        said(ref)


def test_a_change_that_keeps_size_and_times_is_noticed(workspace, said):
    import os

    workspace.shell("a/tool", "echo one")
    path = workspace.path("tools/a/tool.sh")
    twice(said)
    before = path.stat()
    with path.open("r+b") as file:  # the same inode
        file.write(path.read_bytes().replace(b"one", b"two"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ContentChanged):
        said()


def test_a_changed_runtime_is_noticed(workspace, said):
    workspace.yaml("a/runtime", config=SAY)
    workspace.shell("a/tool", "", executor_id="a/runtime")
    assert twice(said) == "runtime"
    workspace.yaml("a/runtime", config={**SAY, "args": ["changed"]})
    assert twice(said) == "changed"


def test_a_tool_that_goes_is_noticed(workspace, said):
    workspace.shell("a/tool", "echo one", space="user")
    workspace.shell("a/tool", "echo two")
    assert twice(said) == "two"
    workspace.path("tools/a/tool.sh").unlink()
    assert twice(said) == "one"
    workspace.path("tools/a/tool.sh", "user").unlink()
    with pytest.raises(ItemNotFound):
        said()


def test_a_tool_that_comes_is_noticed(workspace, said):
    with pytest.raises(ItemNotFound):
        said()
    workspace.shell("a/tool", "echo one")
    assert twice(said) == "one"


def test_a_new_shadow_is_noticed_in_user_space_and_in_the_project(workspace):
    workspace.shell("a/tool", "echo system", space="system")
    with workspace.sync() as rye:
        for space in ("system", "user", "project"):
            workspace.shell("a/tool", f"echo {space}", space=space)
            for _ in range(2):
                assert rye.execute("tool:a/tool").data["stdout"] == f"{space}\n"


def test_a_new_shadow_with_another_extension_is_noticed(workspace, said):
    workspace.shell("a/tool", "echo user", space="user")
    assert twice(said) == "user"
    workspace.yaml("a/tool", config={"command": "/bin/echo", "args": ["yaml"]})
    assert twice(said) == "yaml"


def test_a_second_file_of_the_same_stem_is_noticed(workspace, said):
    workspace.shell("a/tool", "echo one")
    twice(said)
    workspace.yaml("a/tool", config=SAY)
    with pytest.raises(AmbiguousItem):
        said()


@pytest.mark.parametrize("space", ["user", "project"])
def test_a_new_shadow_of_a_runtime_is_noticed(workspace, said, space):
    workspace.shell("a/tool", "echo tool")
    assert twice(said) == "tool"
    workspace.yaml(BASH, config=SAY, space=space)
    assert twice(said) == "runtime"


def test_an_unsigned_shadow_is_noticed_and_refused(workspace, said):
    workspace.shell("a/tool", "echo user", space="user")
    twice(said)
    workspace.write("tools/a/tool.sh", "echo evil", sign=False)
    with pytest.raises(UnsignedItem):
        said()


def test_a_key_that_is_revoked_or_taken_away_is_noticed(workspace, rye, said):
    other = SigningKey.generate()
    trusted = workspace.keys.trust(other.public, "a colleague")
    workspace.shell("a/tool", "echo one")
    workspace.sign(workspace.path("tools/a/tool.sh"), key=other)
    assert twice(said) == "one"
    workspace.keys.trust(other.public, "a colleague", revoked=True)
    with pytest.raises(RevokedKey):
        said()
    trusted.unlink()
    with pytest.raises(UntrustedKey):
        said()
    workspace.keys.trust(other.public, "a colleague")
    assert twice(said) == "one"


def test_a_key_that_expires_is_noticed(workspace, said, monkeypatch):
    other = SigningKey.generate()
    workspace.keys.trust(other.public, "a colleague", not_after="2999-01-01T00:00:00Z")
    workspace.shell("a/tool", "echo one")
    workspace.sign(workspace.path("tools/a/tool.sh"), key=other)
    assert twice(said) == "one"
    for module in ("ryecore.items.trust", "ryecore.chain.prepared"):
        monkeypatch.setattr(f"{module}.utc_now", lambda: "2999-01-02T00:00:00Z")
    with pytest.raises(RevokedKey, match="expired"):
        said()


def test_a_new_and_a_changed_dotenv_are_noticed(workspace, said):
    workspace.shell("a/tool", "echo $GREETING", env_config={"env": {"GREETING": "${GREETING}"}})
    assert twice(said) == ""
    (workspace.project / ".env").write_text("GREETING=hello\n")
    assert twice(said) == "hello"
    (workspace.project / ".env").write_text("GREETING=again\n")
    assert twice(said) == "again"
    (workspace.project / ".env").unlink()
    assert twice(said) == ""


def test_a_new_and_a_changed_config_layer_are_noticed(workspace, rye):
    ref = workspace.shell("a/tool", "cat", config_resolve={"path": "web/x.yaml"})
    steps = [("user", {"a": 1}), ("project", {"a": 2}), ("project", {"a": 3})]
    assert rye.execute(ref).data["resolved_config"] == {}
    for space, values in steps:
        workspace.write("config/web/x.yaml", values, space=space)
        for _ in range(2):
            assert rye.execute(ref).data["resolved_config"] == values


def test_new_execution_config_is_noticed(workspace, rye):
    ref = workspace.shell("a/tool", "true")
    assert rye.execute(ref, dry_run=True).plan.timeout_s == 300
    workspace.write("config/execution/execution.yaml", {"tools": {"a/tool": {"timeout": 5}}})
    assert rye.execute(ref, dry_run=True).plan.timeout_s == 5


@pytest.mark.parametrize("timeout", ["soon", 0, -1, ".inf", ".nan", True])
def test_a_timeout_in_execution_config_that_is_none_is_refused(workspace, rye, timeout):
    ref = workspace.shell("a/tool", "touch ran")
    text = f"tools: {{a/tool: {{timeout: {timeout}}}}}"
    workspace.write("config/execution/execution.yaml", text)
    with pytest.raises(ConfigError, match=r"execution\.yaml: timeout") as refused:
        rye.execute(ref, trace=True)
    assert refused.value.trace[-1]["failed"]
    assert not (workspace.project / "ran").exists()


TRY = """\
def execute(params, project_path):
    try:
        import helper
    except ImportError:
        return None
    return helper.VALUE
"""


def test_a_new_marker_and_one_that_goes_are_noticed(workspace, rye):
    workspace.write("tools/a/helper.py", "VALUE = 1")
    ref = workspace.python("a/tool", TRY)
    marker = workspace.path("tools/a/pyproject.toml")
    for _ in range(2):
        assert rye.execute(ref).data is None or rye.execute(ref).data == {}
        workspace.write("tools/a/pyproject.toml", "")
        assert rye.execute(ref).data == 1
        assert rye.execute(ref).data == 1
        marker.unlink()


def test_a_changed_or_new_sibling_is_noticed(workspace, rye):
    workspace.write("tools/a/__init__.py", "")
    workspace.write("tools/a/helper.py", "VALUE = 1")
    ref = workspace.python("a/tool", TRY)
    assert rye.execute(ref).data == 1
    workspace.write("tools/a/helper.py", "VALUE = 2")
    assert rye.execute(ref).data == 2
    planted = workspace.write("tools/a/sub/planted.py", "", sign=False)
    with pytest.raises(UnsignedItem):
        rye.execute(ref)
    planted.unlink()
    assert rye.execute(ref).data == 2


def test_a_changed_file_with_a_sidecar_is_noticed(workspace, rye):
    workspace.write("tools/a/__init__.py", "")
    native = workspace.write("tools/a/native.so", b"\x7fELF signed")
    ref = workspace.python("a/tool", TRY)
    assert rye.execute(ref).success
    native.write_bytes(b"\x7fELF changed")
    with pytest.raises(ContentChanged, match=str(native)):
        rye.execute(ref)


@pytest.fixture
def interpreters(workspace: Workspace) -> Callable[[str], Path]:
    """Puts programs on the PATH that print their own name."""
    folder = workspace.root / "bin"
    folder.mkdir()
    workspace.environ["PATH"] = f"{folder}:{workspace.environ['PATH']}"

    def install(name: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\necho {name}\n")
        path.chmod(0o755)
        return path

    workspace.yaml(
        "a/runtime",
        config={"command": "${RYE_X}"},
        env_config={
            "interpreter": {
                "type": "system_binary",
                "var": "RYE_X",
                "binary": "xlang",
                "fallback": "xlang9",
            }
        },
    )
    workspace.shell("a/tool", "", executor_id="a/runtime")
    return install


def test_a_new_interpreter_is_noticed(interpreters, workspace):
    interpreters("xlang9")
    with workspace.sync() as rye:
        assert rye.execute("tool:a/tool").data["stdout"] == "xlang9\n"
        interpreters("xlang")
        assert rye.execute("tool:a/tool").data["stdout"] == "xlang\n"


def test_an_interpreter_that_goes_is_noticed(interpreters, workspace):
    interpreters("xlang9")
    best = interpreters("xlang")
    with workspace.sync() as rye:
        assert rye.execute("tool:a/tool").data["stdout"] == "xlang\n"
        best.unlink()
        assert rye.execute("tool:a/tool").data["stdout"] == "xlang9\n"


def test_after_no_interpreter_was_left_a_new_one_is_noticed(interpreters, workspace):
    only = interpreters("xlang")
    with workspace.sync() as rye:
        assert rye.execute("tool:a/tool").data["stdout"] == "xlang\n"
        only.unlink()
        with pytest.raises(InterpreterNotFound):
            rye.execute("tool:a/tool")
        interpreters("xlang9")
        assert rye.execute("tool:a/tool").data["stdout"] == "xlang9\n"


def test_two_open_ryes_never_see_each_others_chains(workspace, tmp_path):
    (tmp_path / "second").mkdir()
    other = Workspace(tmp_path / "second")
    workspace.shell("a/tool", "echo first")
    other.shell("a/tool", "echo second")
    with workspace.sync() as one, other.sync() as two:
        for _ in range(3):
            assert one.execute("tool:a/tool").data["stdout"] == "first\n"
            assert two.execute("tool:a/tool").data["stdout"] == "second\n"
        # nor keys: what one trusts the other doesn't
        other.write("tools/a/tool.sh", workspace.path("tools/a/tool.sh").read_text(), sign=False)
        with pytest.raises(UntrustedKey):
            two.execute("tool:a/tool")
        assert one.execute("tool:a/tool").success


def test_two_ryes_of_one_project_may_have_different_environments(workspace):
    workspace.shell("a/tool", "echo $WHO")
    environs = ({**workspace.environ, "WHO": who} for who in ("one", "two"))
    with (
        workspace.sync(environ=next(environs)) as one,
        workspace.sync(environ=next(environs)) as two,
    ):
        for _ in range(2):
            assert one.execute("tool:a/tool").data["stdout"] == "one\n"
            assert two.execute("tool:a/tool").data["stdout"] == "two\n"


def test_a_schema_that_is_none_is_refused_with_the_tools_path(workspace, rye):
    from ryecore.errors import MetadataError

    ref = workspace.shell("a/tool", "true", config_schema={"type": "banana"})
    with pytest.raises(MetadataError, match=r"tool\.sh.*CONFIG_SCHEMA"):
        rye.execute(ref)


def test_a_config_schema_beyond_the_bounds_is_refused_in_one_sentence(workspace, rye):
    schema = {
        "$ref": "#/$defs/l0",
        "$defs": {f"l{n}": {"$ref": f"#/$defs/l{n + 1}"} for n in range(300)},
    }
    ref = workspace.shell("a/tool", "true", config_schema=schema)
    with pytest.raises(MetadataError, match=r"the schema is nested too deeply\. Correct"):
        rye.execute(ref)
