"""Maps as real processes: killed in the middle and continued, stopped by Ctrl-C, and retried."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.detached import PATIENCE_S, until_printed
from tests.forking import ROOT, Forked
from tests.killing import lines_of
from tests.map_deps import COST, DEPS, furnish
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


def started(workspace: Workspace, *arguments: str) -> "subprocess.Popen[bytes]":
    command = ["ryecore.cli", "map", *arguments, "--deps", DEPS]
    return Forked(
        command,
        cwd=str(workspace.project),
        env={**os.environ, **workspace.environ, "USER_SPACE": str(workspace.user),
             "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


async def ended(process: "subprocess.Popen[bytes]") -> tuple[int, str, str]:
    out, err = await anyio.to_thread.run_sync(process.communicate)
    assert b"Traceback" not in err, err.decode()
    return process.returncode, out.decode(), err.decode()


def written(workspace: Workspace, *texts: str) -> str:
    path = workspace.project / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    return path.name


def asked(workspace: Workspace) -> Path:
    return workspace.project / "asked"


async def test_a_map_that_is_killed_is_continued_with_what_is_left(workspace: Workspace) -> None:
    ref = furnish(workspace)
    texts = ["t0", "t1", "wait2", "t3", "wait4", "wait5", "t6", "t7"]
    file = written(workspace, *texts)
    with anyio.fail_after(PATIENCE_S):
        command = started(
            workspace, ref, file, "--concurrency", "3", "--limit", "spend=0.9", "--json"
        )
        await until_printed(asked(workspace), "wait5")
        command.kill()
        assert (await ended(command))[0] == -signal.SIGKILL
    done_before = [one for one in lines_of(asked(workspace)) if not one.startswith("wait")]
    assert done_before == ["t0", "t1", "t3"]
    async with workspace.open() as rye:
        ((run_id,),) = [[one.thread_id for one in await rye.graphs.list()]]
        found = await rye.map.show(run_id)
    assert [one.status for one in found] == [
        "completed", "completed", "interrupted", "completed", "interrupted", "interrupted",
        "pending", "pending",
    ]  # fmt: skip
    (workspace.project / "open").touch()
    code, _, err = await ended(started(workspace, "--resume", run_id))
    assert code == 2
    assert "whether it took effect is unknown" in err
    asked(workspace).unlink()
    code, out, _ = await ended(started(workspace, "--resume", run_id, "--rerun", "--json"))
    assert code == 0
    document = json.loads(out)
    assert [one["output"] for one in document["results"]] == [f"label of {one}" for one in texts]
    assert sorted(lines_of(asked(workspace))) == ["t6", "t7", "wait2", "wait4", "wait5"]
    async with workspace.open() as rye:
        first, again = [await rye.graphs.show(one) for one in (run_id, document["run_id"])]
    kept = 0.9 - first.cost.spend_microcents / 1e8  # what was held for a dead request is spent
    assert again.record.limits is not None
    assert 0 < float(str(again.record.limits["spend"])) <= kept
    assert document["spend"] >= 8 * COST / 1e8


async def test_ctrl_c_ends_a_map_and_shows_what_is_done(workspace: Workspace) -> None:
    ref = furnish(workspace)
    file = written(workspace, "t0", "wait1", "t2")
    with anyio.fail_after(PATIENCE_S):
        command = started(workspace, ref, file, "--concurrency", "1")
        await until_printed(asked(workspace), "wait1")
        command.send_signal(signal.SIGINT)
        code, out, _ = await ended(command)
    assert code == 1
    assert "cancelled" in out
    assert "1 completed, 1 interrupted, 1 not run" in out
    assert "next: Go on: rye map --resume rye/map/map-" in out


async def test_failed_rows_are_retried_and_written_to_files(workspace: Workspace) -> None:
    ref = furnish(workspace)
    code, out, err = await ended(
        started(workspace, ref, written(workspace, "t0", "broken1", "t2"), "--out", "out.jsonl")
    )
    assert code == 1
    assert "[map:directive:ds/label] 3 of 3 rows, 1 failed" in err
    assert "✗ row 1  no" in out
    lines = [json.loads(one) for one in lines_of(workspace.project / "out.jsonl")]
    assert [one["status"] for one in lines] == ["completed", "failed", "completed"]
    run_id = out.split("--retry-failed ")[1].split()[0]
    (workspace.project / "open").touch()
    code, out, err = await ended(
        started(workspace, "--retry-failed", run_id, "--svg", "cost.svg", "--quiet", "--json")
    )
    assert (code, err) == (0, "")
    assert json.loads(out)["rows_completed"] == 3
    assert lines_of(asked(workspace)).count("t0") == 1
    assert (workspace.project / "cost.svg").read_text().startswith("<svg ")
