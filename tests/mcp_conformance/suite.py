"""The published conformance suite of MCP, of both eras: its runs, and their results.

Source: https://github.com/modelcontextprotocol/conformance.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from attrs import frozen
from ruamel.yaml import YAML

from tests.mcp_clients import http
from tests.mcp_conformance.node import ROOT
from tests.workspace import Workspace

__all__ = [
    "RUNS",
    "ScenarioResult",
    "SuiteRun",
    "expected_failures",
    "has_client",
    "run_suite",
    "served_project",
]

HERE: Final = Path(__file__).parent
_PROJECT: Final = HERE / "project"
_EXPECTED: Final = HERE / "expected.yaml"
_SIGNED: Final = frozenset({".py", ".md", ".yaml"})
_CLIENT: Final = HERE / "client.py"
_TIMEOUT_S: Final = 900
_SCENARIO_TIMEOUT_MS: Final = 60_000

Side = Literal["server", "client"]


@frozen
class SuiteRun:
    """One run of the suite.

    Attributes:
        side: What is tested.
        package: The package of the suite, by its name in package.json.
        version: The version of the protocol; empty for all that the package has, and `extensions`
            for those of its scenarios that belong to no version.
    """

    side: Side
    package: str
    version: str

    @property
    def name(self) -> str:
        """Its name, in the tally and in expected.yaml."""
        return f"{self.side} {self.version or self.package}"


RUNS: Final = (
    SuiteRun("server", "conformance-2025", ""),
    SuiteRun("server", "conformance-2026", "2025-11-25"),
    SuiteRun("server", "conformance-2026", "2026-07-28"),
    SuiteRun("server", "conformance-2026", "extensions"),
    SuiteRun("client", "conformance-2025", ""),
    SuiteRun("client", "conformance-2026", "2025-11-25"),
    SuiteRun("client", "conformance-2026", "2026-07-28"),
    SuiteRun("client", "conformance-2026", "extensions"),
)


@frozen
class ScenarioResult:
    """What the suite says of a scenario: its checks by status, and what went wrong."""

    scenario: str
    passed: int
    failed: int
    warned: int
    problems: tuple[str, ...]


@contextmanager
def served_project(root: Path, *, fresh: bool = False) -> Iterator[str]:
    """Serve the fixture project, signed with a new key, and yield its URL.

    A fresh server imports all that it needs by itself.
    """
    workspace = Workspace(root)
    for path in sorted(_PROJECT.rglob("*")):
        if path.is_file():
            relative = path.relative_to(_PROJECT / ".ai").as_posix()
            signed = path.suffix in _SIGNED
            workspace.write(relative, path.read_bytes(), sign=signed)
    with http(workspace, "--no-auth", fresh=fresh) as served:
        yield served.url


def run_suite(
    run: SuiteRun, node: Path, packages: Path, url: str = "", scenarios: Sequence[str] = ()
) -> dict[str, ScenarioResult]:
    """Run the suite, and return its results by scenario.

    Args:
        run: Which.
        node: The Node to run it with.
        packages: The folder that holds its `node_modules`.
        url: The server; for the side of the server alone.
        scenarios: The only scenarios to run; all by default.
    """
    program = packages / "node_modules" / run.package / "dist" / "index.js"
    command = [str(node), str(program), run.side]
    if run.side == "server":
        command += ["--url", url]
    else:
        command += ["--command", f"{sys.executable} -m tests.mcp_conformance.client"]
        command += ["--timeout", str(_SCENARIO_TIMEOUT_MS)]
    if run.version == "extensions" or run.side == "client":
        # The suite would run all clients at once, each of which is a process of its own.
        scenarios = scenarios or _scenarios(node, program, run)
    if run.version not in ("", "extensions"):
        command += ["--spec-version", run.version]
    found: dict[str, ScenarioResult] = {}
    for chosen in [["--scenario", one] for one in scenarios] or [["--suite", "all"]]:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [*command, *chosen, "--output-dir", folder],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                check=False,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
            )
            found |= _results(Path(folder), run.side)
        if not found:
            raise RuntimeError(f"The suite failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return dict(sorted(found.items()))


def _scenarios(node: Path, program: Path, run: SuiteRun) -> list[str]:
    """Return the scenarios of a run, by the versions that the suite lists with each."""
    listed = subprocess.run(
        [str(node), str(program), "list"], check=True, capture_output=True, text=True
    ).stdout
    own = listed.partition(f"{run.side.capitalize()} scenarios")[2].partition(" scenarios ")[0]
    found = re.findall(r"- (\S+) \[(.+)\]", own)
    wanted = "extension" if run.version == "extensions" else run.version
    return [name for name, versions in found if not wanted or wanted in versions.split(",")]


def expected_failures() -> Mapping[str, Mapping[str, str]]:
    """Return the scenarios that can't pass, by run, each with its reason."""
    found: Mapping[str, Mapping[str, str]] = YAML(typ="safe").load(_EXPECTED.read_text())
    return found


def _results(folder: Path, side: Side) -> dict[str, ScenarioResult]:
    found: dict[str, ScenarioResult] = {}
    for path in folder.rglob("checks.json"):
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", path.parent.relative_to(folder).as_posix())
        name = name.removeprefix(f"{side}-") if side == "server" else name
        checks: list[Mapping[str, Any]] = json.loads(path.read_text())
        count = {
            status: sum(one["status"] == status for one in checks)
            for status in ("SUCCESS", "FAILURE", "WARNING")
        }
        problems = tuple(
            f"{one['id']}: {one.get('errorMessage', '')}"
            for one in checks
            if one["status"] in ("FAILURE", "WARNING")
        )
        found[name] = ScenarioResult(
            name, count["SUCCESS"], count["FAILURE"], count["WARNING"], problems
        )
    return found


def has_client() -> bool:
    """Return whether there is a client for the side of the client."""
    return _CLIENT.is_file()
