"""The modules of native/core use only modules below their own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(checkout: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, str(checkout / ".ci/rust_modules.py"), *options]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def write(checkout: Path, modules: dict[str, str]) -> None:
    (checkout / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/rust_modules.py", checkout / ".ci")
    for name, text in modules.items():
        path = checkout / "native/core/src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_this_repository_has_no_circle() -> None:
    done = run(ROOT)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "use",
    [
        "use super::run::{Run, stop};",
        "pub(super) use crate::process::{kill, run::Run};",
        "fn end() { super::run::stop() }",
        "use crate::process::Run;  // which the parent re-exports",
    ],
)
def test_a_circle_is_named(tmp_path: Path, use: str) -> None:
    write(
        tmp_path,
        {
            "lib.rs": "pub mod process;\n",
            "process/mod.rs": "mod kill;\nmod run;\npub use run::Run;\n",
            "process/run.rs": "use super::kill::end;\npub struct Run;\npub fn stop() {}\n",
            "process/kill.rs": f"{use}\npub fn end() {{}}\n",
        },
    )

    refused = run(tmp_path)

    assert refused.returncode == 1
    assert "process::run" in refused.stderr
    assert "process::kill" in refused.stderr


def test_tests_and_facades_make_no_circle(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "lib.rs": "pub mod process;\n",
            "process/mod.rs": "mod kill;\nmod run;\npub use {kill::end, run::Run};\n",
            "process/run.rs": "use crate::process::end;\npub struct Run;\n",
            "process/kill.rs": "// use super::run::Run;\npub fn end() {}\n\n"
            "#[cfg(test)]\nmod tests {\n    use crate::process::Run;\n}\n",
        },
    )

    done = run(tmp_path, "--show")

    assert done.returncode == 0, done.stderr
    assert "0: process, process::kill\n1: process::run" in done.stdout
