"""Run the published conformance suite of MCP, and print the tally: `make mcp-conformance`.

It ends with 1 where a scenario fails that expected.yaml doesn't name, or one passes that it names.
"""

import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.mcp_conformance.node import find_node
from tests.mcp_conformance.suite import (
    RUNS,
    ScenarioResult,
    expected_failures,
    has_client,
    run_suite,
    served_project,
)
from tests.npm import npm_folder


def tally(name: str, results: Mapping[str, ScenarioResult], expected: Mapping[str, str]) -> int:
    """Print the results of a run, and return how many are not as expected."""
    passed = [one for one in results.values() if not one.failed]
    print(f"\n{name}: {len(passed)} of {len(results)} scenarios pass, "
          f"with {sum(one.passed for one in results.values())} checks")  # fmt: skip
    wrong = 0
    for scenario, one in results.items():
        reason = expected.get(scenario)
        if one.failed and reason:
            print(f"  - {scenario}: fails as expected: {reason}")
        elif one.failed:
            wrong += 1
            print(f"  ✗ {scenario}: {'; '.join(one.problems)[:500]}")
        elif reason:
            wrong += 1
            print(f"  ✗ {scenario}: passes, though expected.yaml says: {reason}")
        elif one.warned:
            print(f"  ! {scenario}: {'; '.join(one.problems)[:300]}")
    for scenario in sorted(expected.keys() - results.keys()):
        wrong += 1
        print(f"  ✗ {scenario}: not there, though expected.yaml names it")
    return wrong


def main() -> int:
    """Run every run whose name begins with an argument; all without one."""
    node, packages = find_node(), npm_folder("mcp-conformance")
    if node is None or isinstance(packages, str):
        print(packages if isinstance(packages, str) else "There is no Node of version 22 or newer.")
        return 1
    wanted = [one for one in RUNS if one.name.startswith(tuple(sys.argv[1:]) or "")]
    expected, wrong = expected_failures(), 0
    with ExitStack() as stack:
        url = ""
        if any(one.side == "server" for one in wanted):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = stack.enter_context(served_project(folder, fresh=True))
        for run in wanted:
            if run.side == "client" and not has_client():
                print(f"\n{run.name}: there is no client yet")
                continue
            results = run_suite(run, node, packages, url)
            wrong += tally(run.name, results, expected.get(run.name, {}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
