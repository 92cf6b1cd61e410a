"""Warm calls of tools in JavaScript, TypeScript and Rust, each beside the program run by itself."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ryecore import SyncRye
from tests.benchmarks.harness import compare, report
from tests.npm import npm_program
from tests.workspace import Workspace

_NODE = "rye/core/runtimes/node/node"
_RUST = "rye/core/runtimes/rust/runtime"
_LARGE_BYTES = 50 * 1024 * 1024
_ENV = {"PATH": os.environ["PATH"], "TSX_DISABLE_CACHE": "1"}


@contextmanager
def _furnished(
    files: Mapping[str, str | bytes], environ: Mapping[str, str] | None = None
) -> Iterator[tuple[Workspace, SyncRye]]:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        workspace.environ |= environ or {}
        for name, content in files.items():
            workspace.write(f"tools/acme/{name}", content)
        with workspace.sync() as rye:
            yield workspace, rye


def _run_alone(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env=_ENV)


def _script(name: str, body: str, interpreter: str, goal: str) -> None:
    header = f'const __executor_id__ = "{_NODE}";\n'
    files = {name: header + body, "package.json": "{}"}
    with _furnished(files, {"RYE_NODE": interpreter}) as (workspace, rye):
        path = str(workspace.path(f"tools/acme/{name}"))
        compare(
            f"warm call of a {Path(name).suffix} tool",
            lambda: rye.execute("tool:acme/tool").raise_for_status(),
            lambda: _run_alone(interpreter, path),
            goal=goal,
            rounds=15,
            unit="ms",
        )


def _node() -> None:
    node = shutil.which("node") or "node"
    _script("tool.js", "console.log(0);\n", node, "<= 1.3x node tool.js")
    tsx = str(npm_program("tsx", "tsx"))
    _script("tool.ts", "console.log(0 as number);\n", tsx, "<= 1.2x tsx tool.ts")


def _rust(program: bytes) -> None:
    declared = f"executor_id: {_RUST}\nconfig: {{binary: program}}\n"
    for size_bytes in (len(program), _LARGE_BYTES):
        padded = program.ljust(size_bytes, b"\0")  # what is behind a binary doesn't change it
        with _furnished({"tool.yaml": declared, "program": padded}) as (workspace, rye):
            alone = workspace.path("tools/acme/program")
            alone.chmod(0o755)
            mib = size_bytes / 2**20
            started = time.perf_counter()
            rye.execute("tool:acme/tool").raise_for_status()
            first_ms = (time.perf_counter() - started) * 1e3
            report(
                f"first call of a {mib:.0f} MiB binary", first_ms, "ms", goal="one read and seal"
            )
            compare(
                f"warm call of a {mib:.0f} MiB binary",
                lambda: rye.execute("tool:acme/tool").raise_for_status(),
                lambda path=str(alone): _run_alone(path),
                goal="<= 2x the program alone, whatever its size",
                unit="ms",
            )


def run() -> None:
    """Print the figures."""
    _node()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "main.rs")
        source.write_text('fn main() { println!("0"); }\n')
        subprocess.run(["rustc", "-O", str(source), "-o", f"{folder}/program"], check=True)
        _rust(Path(folder, "program").read_bytes())


if __name__ == "__main__":
    run()
