"""The published conformance suite of MCP, with ryecore on either side: some of its scenarios.

All of them, of both sides and both eras, are run by `make mcp-conformance`, and by the soak.
"""

from pathlib import Path

import pytest

from tests.matrix import IS_SOAK
from tests.mcp_conformance.node import find_node
from tests.mcp_conformance.suite import RUNS, SuiteRun, expected_failures, run_suite, served_project
from tests.npm import npm_set

pytestmark = pytest.mark.skipif(
    find_node() is None, reason="needs Node 22 or newer (make mcp-conformance brings one)"
)

NEWEST = [one for one in RUNS if one.version == "2026-07-28"]
SOME = (
    "tools-call-mixed-content",
    "json-schema-2020-12",
    "resources-templates-read",
    "prompts-get-embedded-resource",
    "completion-complete",
    "caching",
    "input-required-result-multi-round",
    "input-required-result-tampered-state",
)
"""One or two of each kind, which take half a second each."""

SOME_OF_CLIENT = ("auth/scope-step-up",)
"""Each takes two seconds: it starts a client of its own."""


@pytest.mark.parametrize("run", RUNS if IS_SOAK else NEWEST, ids=lambda run: run.name)
def test_the_published_suite_passes(run: SuiteRun, tmp_path: Path) -> None:
    node = find_node()
    assert node is not None
    packages = npm_set("mcp-conformance")
    some: tuple[str, ...] = () if IS_SOAK else SOME if run.side == "server" else SOME_OF_CLIENT
    if run.side == "client":
        results = run_suite(run, node, packages, scenarios=some)
    else:
        with served_project(tmp_path) as url:
            results = run_suite(run, node, packages, url, some)
    failed = {name: one.problems for name, one in results.items() if one.failed}
    expected = expected_failures().get(run.name, {})
    assert failed.keys() == expected.keys() & results.keys(), failed
    assert sum(one.passed for one in results.values()) >= len(results) - len(failed)
    assert len(results) >= len(some)
