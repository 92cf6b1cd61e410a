"""What an import costs, and what an installation weighs."""

import subprocess
import sys
import sysconfig
from importlib.metadata import distribution, requires
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement

from tests.benchmarks.harness import compare, report

_MIB = 1024 * 1024
_COMMAND = "import attrs, click, json, pathlib"
"""The libraries that `rye execute` of a shell tool uses."""
_THREADS = (
    f"{_COMMAND}\n"
    "import anyio._backends._asyncio, cattrs, defusedxml.ElementTree, hashlib, ruamel.yaml\n"
    "import sqlite3, tomllib"
)
"""The libraries that threads use besides."""
_PRICES = "import genai_prices.data"
_PEAK = (
    "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
)


def _start(code: str) -> None:
    _run("-c", code)


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def import_time() -> None:
    """A fresh interpreter that imports, beside one that imports asyncio and json."""
    for code, goal in (
        ("import ryecore", "<= 2x over a bare interpreter: 120 ms beside 61 ms"),
        ("from ryecore import Rye, SyncRye", "<= 2x over a bare interpreter: 120 ms beside 61 ms"),
    ):
        compare(
            f"{code} (whole process)",
            lambda code=code: _start(code),
            lambda: _start("import asyncio, json"),
            goal=goal,
            rounds=15,
            unit="ms",
        )
    compare(
        "asyncio and json over a bare interpreter (whole process)",
        lambda: _start("import asyncio, json"),
        lambda: _start("pass"),
        goal="for comparison",
        rounds=15,
        unit="ms",
    )


def command_time() -> None:
    """The command, beside a bare interpreter."""
    with TemporaryDirectory() as folder:
        tool = ("execute", "--project", folder, "tool:rye/bash", "command=true")
        for name, arguments, goal in (
            ("rye --version", ("--version",), "<= 60 ms beside 8 ms"),
            ("rye execute of a shell tool", tool, "<= 120 ms beside 8 ms"),
        ):
            compare(
                f"{name} (whole process)",
                lambda arguments=arguments: _run("-m", "ryecore.cli", *arguments),
                lambda: _start("pass"),
                goal=goal,
                rounds=15,
                unit="ms",
            )


def _libraries_and_tool() -> None:
    # Garbage is collected as little as in the command.
    _start(f"import gc; gc.set_threshold(100_000)\n{_COMMAND}\ngc.freeze()")
    _run("-IBu", "-Xutf8", "-c", "import json, os, site, sys")  # as a Python tool starts


def command_bound() -> None:
    """What `rye execute` can't go below: its libraries, and the interpreter of its tool."""
    compare(
        "the libraries of rye execute, and a bare start of its tool (two processes)",
        _libraries_and_tool,
        lambda: _start("pass"),
        goal="the bound of rye execute",
        rounds=15,
        unit="ms",
    )


def memory() -> None:
    """What a process with threads holds before any of ryecore."""
    for name, code in (
        ("a bare interpreter", "pass"),
        ("the libraries of threads", _THREADS),
        ("the same with the bundled prices", f"{_THREADS}; {_PRICES}"),
    ):
        command = [sys.executable, "-c", f"{code}; {_PEAK}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        report(f"{name}, peak memory", int(done.stdout) / 1024, "MiB", goal="for comparison")


def installed_size() -> None:
    """The base installation: ryecore and all that it needs, bytecode left out."""
    names, waiting = set[str](), ["ryecore"]
    while waiting:
        name = waiting.pop()
        if name in names:
            continue
        names.add(name)
        for line in requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    sizes = {name: _size_bytes(name) / _MIB for name in names}
    report(
        "installed size, base",
        sum(sizes.values()),
        "MiB",
        goal="<= 20 MiB",
        largest=dict(sorted(sizes.items(), key=lambda item: -item[1])[:6]),
    )


def _size_bytes(name: str) -> int:
    if name == "ryecore":  # installed in place: its files stand in the source folder
        files = list((Path(__file__).parents[2] / "src/ryecore").rglob("*"))
    else:
        base = Path(sysconfig.get_path("purelib"))
        files = [base / file for file in distribution(name).files or ()]
    return sum(
        file.stat().st_size for file in files if file.is_file() and "__pycache__" not in file.parts
    )


def run() -> None:
    """Print the figures."""
    import_time()
    command_time()
    command_bound()
    memory()
    installed_size()


if __name__ == "__main__":
    run()
