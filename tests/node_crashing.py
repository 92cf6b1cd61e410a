"""A node that is killed between any two of its writes, and the run that its next start finds.

`python -m tests.node_crashing TEMPLATE WORK HOW=STEP ...` serves it; see `tests.killing`.
"""

import json
from pathlib import Path
from typing import Any, Final

import anyio

from ryecore.lillux.keys import PublicKey
from ryecore.node.content import CallerContent
from ryecore.remote.protocol.models import Ceiling
from ryecore.remote.protocol.reports import EarlierThread, RunReport
from ryecore.state.thread_file import TRANSCRIPT
from ryecore.state.transcript_check import verify_transcript
from tests import crashing
from tests.crashing import ASKED, EFFECTS, PARENT, agent_of
from tests.killing import lines_of, main
from tests.node_host import direct_node
from tests.workspace import Workspace

__all__ = ["furnish"]

_LEAST_COST: Final = 1000 * 100 + 50 * 500
"""What each answer costs at least, in microcents."""

_FIRST_DEATH: Final = 160
"""While the thread runs."""


def furnish(root: Path) -> None:
    """Make a workspace, and a node that has its snapshot."""
    crashing.furnish(root)
    anyio.run(_push, root)


async def _push(root: Path) -> None:
    async with direct_node(Workspace(root, is_new=False), root / "node") as node:
        (root / "snapshot").write_text(node.push())


async def _live(root: Path) -> RunReport:
    options: dict[str, Any] = {"agent": agent_of(root)}
    async with direct_node(Workspace(root, is_new=False), root / "node", **options) as node:
        body = node.body(
            PARENT, snapshot=(root / "snapshot").read_text(), ceiling=Ceiling(10**9, 900_000)
        )
        report = node.report(await node.send(body))
        _prove_chain(report, node.content.of(node.caller), root)
        return report


def _prove_chain(report: RunReport, content: CallerContent, root: Path) -> None:
    """Prove the transcript of each thread that the run had."""
    assert report.run_key is not None
    key = PublicKey.from_pem(report.run_key)
    last = EarlierThread(report.node_thread_id or "", report.transcript, report.files)
    for one in (*report.earlier, last):
        files = {file.name: content.open(file.sha256).read() for file in one.files}
        if one.transcript is None and TRANSCRIPT not in files:
            continue  # it never began
        path = root / TRANSCRIPT
        path.write_bytes(files[TRANSCRIPT])
        head = None if one.transcript is None else (one.transcript.offset, one.transcript.digest)
        proved = verify_transcript(path, one.node_thread_id, key, head, ended=True)
        assert proved.ok, (one, proved.problems)


async def _recover(root: Path) -> dict[str, Any]:
    before = lines_of(root / EFFECTS)
    report = await _live(root)
    after = lines_of(root / EFFECTS)
    assert len(after) == len(set(after)), f"a tool ran twice: {before} then {after}"
    assert report.status == "completed", report.result
    assert report.result["outputs"] == {"total": 7}, report.result
    asked = len(lines_of(root / ASKED))
    assert report.cost.spend_microcents >= asked * _LEAST_COST, (report.cost, asked)
    assert (await _live(root)) == report
    assert len(lines_of(root / ASKED)) == asked
    return {"before": before, "after": after}


class _Life:
    def live(self, root: Path, how: str) -> None:
        report = anyio.run(_live, root)
        assert report.status == "completed", report.result

    def recover(self, root: Path, how: str) -> str:
        return json.dumps(anyio.run(_recover, root))

    def first_death(self, how: str) -> int | None:
        return _FIRST_DEATH if how == "again" else None


if __name__ == "__main__":
    main(_Life())
