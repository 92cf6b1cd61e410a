"""Compiled tools: what runs is the binary that was signed, from a sealed copy."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ryecore import SigningKey
from ryecore.errors import (
    AnchorError,
    BadSignature,
    ConfigError,
    ContentChanged,
    IntegrityError,
    InterpreterNotFound,
    RyeError,
    SpawnFailed,
    UnsignedItem,
    UntrustedKey,
)
from tests.workspace import PRIMITIVE, Workspace, events

RUST = "rye/core/runtimes/rust/runtime"
REF = "tool:acme/count"
SOURCE = r"""
use std::io::Read;

/// Counts the words of the parameter "text", and shows what it was given.
fn main() {
    let mut parameters = String::new();
    std::io::stdin().read_to_string(&mut parameters).unwrap();
    let text = parameters.split("\"text\": \"").nth(1).and_then(|rest| rest.split('"').next());
    let words = text.expect("there is no text").split_whitespace().count();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let own = std::env::current_exe().unwrap();
    let backtrace = std::env::var("RUST_BACKTRACE").unwrap();
    print!("{{\"words\": {words}, \"args\": {arguments:?}, ");
    println!("\"own\": {own:?}, \"backtrace\": {backtrace:?}}}");
}
"""


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A real program in Rust."""
    if shutil.which("rustc") is None:
        pytest.skip("rustc is not installed here; the library itself is built with it")
    folder = tmp_path_factory.mktemp("rust")
    (folder / "main.rs").write_text(SOURCE)
    command = ["rustc", "--edition=2021", "-O", "main.rs", "-o", "count"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "count").read_bytes()


def furnish(
    workspace: Workspace, program: bytes | None, *, name: str = "counter", **config: object
) -> Path:
    """A tool that names a program, and the program beside it, signed."""
    workspace.yaml("acme/count", executor_id=RUST, config={"binary": name} | config)
    path = workspace.path(f"tools/acme/{name}")
    if program is not None:
        workspace.write(f"tools/acme/{name}", program)
    return path


def test_a_signed_binary_runs_from_its_sealed_copy(workspace: Workspace, binary: bytes) -> None:
    path = furnish(workspace, binary)
    done = workspace.execute(REF, {"text": "one two three"}, trace=True)
    assert done.raise_for_status().data["words"] == 3
    assert done.data["args"] == ["--project-path", str(workspace.project)]
    assert done.data["backtrace"] == "0"
    sealed = Path(done.data["own"])
    assert sealed.name == "counter"
    assert sealed != path
    assert not os.access(path, os.X_OK)  # the author's own file isn't run, nor has it to be
    assert done.chain.ids == ("acme/count", RUST, PRIMITIVE)
    assert events(done.trace, "seal")[0]["files"] == 2
    assert "deps" not in done.metadata


def test_a_panic_is_the_tools_own_failure(workspace: Workspace, binary: bytes) -> None:
    furnish(workspace, binary)
    done = workspace.execute(REF, {})
    assert not done.success
    assert "there is no text" in done.error


def test_only_the_binary_that_is_named_is_verified_and_sealed(
    workspace: Workspace, binary: bytes
) -> None:
    furnish(workspace, binary)
    workspace.write("tools/acme/other", b"\x7fELF", sign=False)
    workspace.write("tools/acme/notes.yaml", "a: 1\n", sign=False)
    done = workspace.execute(REF, {"text": ""}, trace=True)
    assert events(done.trace, "seal")[0]["files"] == 2


def test_it_may_lie_in_a_folder_below_the_tool(workspace: Workspace, binary: bytes) -> None:
    furnish(workspace, binary, name="bin/counter")
    assert workspace.execute(REF, {"text": "one"}).data["words"] == 1


def test_a_tool_may_give_arguments_of_its_own(workspace: Workspace, binary: bytes) -> None:
    furnish(workspace, binary, args=["--fast", "{project_path}"])
    assert workspace.execute(REF, {"text": ""}).data["args"] == ["--fast", str(workspace.project)]


def test_a_caller_can_not_choose_the_binary(workspace: Workspace, binary: bytes) -> None:
    furnish(workspace, binary)
    workspace.write("tools/acme/other", b"#!/bin/sh\necho planted\n")
    parameters = {"text": "one", "binary": "other", "command": "/bin/false"}
    assert workspace.execute(REF, parameters).data["words"] == 1


def _change(path: Path, workspace: Workspace) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def _unsign(path: Path, workspace: Workspace) -> None:
    path.with_name(path.name + ".sig").unlink()


def _swap(path: Path, workspace: Workspace) -> None:
    other = workspace.write("tools/acme/other", b"#!/bin/sh\necho planted\n")
    other.rename(path)
    other.with_name("other.sig").rename(path.with_name(path.name + ".sig"))


def _sign_by_a_stranger(path: Path, workspace: Workspace) -> None:
    workspace.sign(path, key=SigningKey.generate())


def _remove(path: Path, workspace: Workspace) -> None:
    path.unlink()


def _make_a_folder(path: Path, workspace: Workspace) -> None:
    path.unlink()
    path.mkdir()


def _lead_out(path: Path, workspace: Workspace) -> None:
    outside = workspace.project / "counter"
    path.rename(outside)
    path.symlink_to(outside)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (_change, ContentChanged),
        (_unsign, UnsignedItem),
        (_swap, BadSignature),
        (_sign_by_a_stranger, UntrustedKey),
        (_remove, AnchorError),
        (_make_a_folder, IntegrityError),
        (_lead_out, AnchorError),
    ],
)
def test_between_two_calls_a_binary_that_is_not_what_was_signed_is_refused(
    workspace: Workspace,
    binary: bytes,
    change: Callable[[Path, Workspace], None],
    refusal: type[RyeError],
) -> None:
    path = furnish(workspace, binary)
    with workspace.sync() as rye:
        rye.execute(REF, {"text": ""}).raise_for_status()
        change(path, workspace)
        with pytest.raises(refusal, match=str(path)) as refused:
            rye.execute(REF, {"text": ""})
        assert refused.value.next_step
        assert "planted" not in str(refused.value)


def test_the_error_of_an_unsigned_binary_has_the_command_that_signs_it(
    workspace: Workspace,
) -> None:
    furnish(workspace, None)
    workspace.write("tools/acme/counter", b"#!/bin/sh\n", sign=False)
    with pytest.raises(UnsignedItem) as refused:
        workspace.execute(REF)
    assert refused.value.next_step.endswith("rye sign tool:acme/counter")
    with workspace.sync() as rye:
        rye.sign("tool:acme/counter")
        assert rye.execute(REF).success


@pytest.mark.parametrize(
    "name", ["../counter", "/bin/true", "a/../../counter", "", ".", "..", "a//b", "bin/", "a\0b"]
)
def test_a_name_that_leads_elsewhere_is_refused(workspace: Workspace, name: str) -> None:
    workspace.yaml("acme/count", executor_id=RUST, config={"binary": name})
    with pytest.raises(AnchorError, match="names the file"):
        workspace.execute(REF)


def test_a_folder_on_the_way_that_is_a_link_out_is_refused(workspace: Workspace) -> None:
    furnish(workspace, None, name="bin/true")
    workspace.path("tools/acme/bin").symlink_to("/bin")
    with pytest.raises(AnchorError, match="is a link that leaves the anchor"):
        workspace.execute(REF)


def test_a_tool_that_names_no_binary_is_told_so(workspace: Workspace) -> None:
    workspace.yaml("acme/count", executor_id=RUST)
    with pytest.raises(ConfigError, match="doesn't say which file it runs") as refused:
        workspace.execute(REF)
    assert "binary: NAME" in refused.value.next_step


def test_a_script_that_begins_with_its_interpreter_runs_too(workspace: Workspace) -> None:
    furnish(workspace, b'#!/bin/sh\nprintf \'"%s"\' "$2"\n')
    assert workspace.execute(REF).data == str(workspace.project)


def test_what_is_no_program_is_refused_with_the_authors_path(workspace: Workspace) -> None:
    path = furnish(workspace, b"echo 1\n")
    with pytest.raises(InterpreterNotFound, match=rf"{path} is not a program") as refused:
        workspace.execute(REF)
    assert "sealed" not in str(refused.value)


def test_a_binary_for_another_machine_is_refused_with_the_authors_path(
    workspace: Workspace, binary: bytes
) -> None:
    machine = bytearray(binary)
    machine[18:20] = (0x15, 0x00)  # the ELF header says PowerPC
    path = furnish(workspace, bytes(machine))
    with pytest.raises(SpawnFailed, match=str(path)) as refused:
        workspace.execute(REF, {"text": ""})
    assert "neither a binary for this machine nor a script" in refused.value.next_step


def test_a_binary_in_a_cache_inside_the_project_runs_without_trusting_the_project(
    workspace: Workspace, binary: bytes
) -> None:
    furnish(workspace, binary)
    done = workspace.execute(REF, {"text": ""}, opened={"cache_dir": workspace.project / "cache"})
    assert done.raise_for_status().data["words"] == 0


def test_a_neighbour_that_changes_is_no_reason_to_refuse(
    workspace: Workspace, binary: bytes
) -> None:
    furnish(workspace, binary)
    with workspace.sync() as rye:
        rye.execute(REF, {"text": ""}).raise_for_status()
        workspace.write("tools/acme/new.yaml", "a: 1\n", sign=False)
        assert rye.execute(REF, {"text": "one"}).data["words"] == 1
