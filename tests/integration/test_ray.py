"""Tools on a Ray cluster of this machine. tests/conformance/test_targets.py compares results."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from ryecore import CallContext
from ryecore.errors import IntegrityError, RemoteError
from ryecore.policy.reports import ToolProgress, ToolReport
from tests.matrix import IS_SOAK
from tests.rays import ServedRay, name_cluster, needs_ray
from tests.workspace import Workspace, events

pytestmark = [needs_ray, pytest.mark.usefixtures("ray_cluster")]


def test_a_resource_that_no_node_has_is_refused_at_once(workspace: Workspace) -> None:
    ref = workspace.shell("acme/train", "echo never")
    name_cluster(workspace)
    with workspace.sync() as rye:
        rye.remotes.check_cluster("remote:gpu")  # to connect takes a moment, once in a process
    name_cluster(workspace, resources={"GPU": 4, "disk": 1}, patience_s=86_400)

    with pytest.raises(RemoteError, match=r"has 4 GPU: the closest has 0 GPU") as refused:
        workspace.execute(ref, target="remote:gpu")

    assert refused.value.problem == "resources_lacking"
    assert "ray status" in refused.value.next_step


def test_a_check_shows_the_nodes_and_refuses_what_they_lack(workspace: Workspace) -> None:
    name_cluster(workspace, resources={"disk": 1})
    with workspace.sync() as rye:
        found = rye.remotes.check_cluster("remote:gpu")
    assert found.nodes[0]["disk"] == 1

    name_cluster(workspace, resources={"disk": 2})
    with (
        workspace.sync() as rye,
        pytest.raises(RemoteError, match=r"has 2 disk: the closest has 1 disk"),
    ):
        rye.remotes.check_cluster("remote:gpu")


def test_a_tool_that_was_changed_is_refused(workspace: Workspace) -> None:
    name_cluster(workspace)
    ref = workspace.shell("acme/plain", "echo well")
    path = workspace.path("tools/acme/plain.sh")
    path.write_text(path.read_text().replace("well", "evil"))

    with pytest.raises(IntegrityError, match="was changed after the key"):
        workspace.execute(ref, target="remote:gpu")


def test_events_and_output_come_back(workspace: Workspace) -> None:
    name_cluster(workspace)
    ref = workspace.shell("acme/tell", "echo first; echo second >&2")
    seen: list[Mapping[str, Any]] = []
    log = workspace.root / "output.log"

    there = workspace.execute(
        ref, target="remote:gpu", trace=True, output_log=log,
        ctx=CallContext(event_sink=seen.append),
    )  # fmt: skip

    assert events(there.trace, "plan")
    assert [one["step"] for one in seen] == [one["step"] for one in there.trace or ()]
    assert sorted(log.read_text().splitlines()) == ["first", "second"]


def test_what_a_tool_reports_comes_to_its_caller(workspace: Workspace) -> None:
    name_cluster(workspace)
    line = '{"progress": 1, "total": 2}'
    ref = workspace.shell("acme/half", f"echo '{line}' > \"$RYE_CHANNEL\"", reports=True)
    reports: list[ToolReport] = []
    ctx = CallContext(report_sink=reports.append)

    workspace.execute(ref, target="remote:gpu", ctx=ctx)

    assert reports == [ToolProgress(ref, ctx.call_id, 1, 2)]


def test_a_worker_that_dies_says_that_the_effect_is_unknown(workspace: Workspace) -> None:
    name_cluster(workspace)
    counted = workspace.root / "counted"
    ref = workspace.shell("acme/deadly", f"echo once >> {counted}; kill -9 $PPID; sleep 60")

    with pytest.raises(RemoteError, match="whether it had its effect is unknown") as lost:
        workspace.execute(ref, target="remote:gpu")

    assert lost.value.problem == "worker_lost"
    assert counted.read_text() == "once\n"


def test_a_tool_in_the_background_runs_there_and_its_output_is_in_the_log(
    workspace: Workspace,
) -> None:
    name_cluster(workspace)
    ref = workspace.shell("acme/tell", 'echo "{\\"pid\\": $PPID}"')

    with workspace.sync() as rye:
        started = rye.execute(ref, target="remote:gpu", async_=True).to_dict()
        report = rye.threads.wait(str(started["thread_id"]))

    assert (report.status, report.error) == ("completed", None), report.error
    assert report.result["data"]["pid"] != started["pid"]  # another process is its parent
    log = workspace.project / f".ai/state/threads/{started['thread_id']}"
    assert any('"pid"' in path.read_text() for path in log.iterdir() if path.suffix == ".log")


@pytest.mark.skipif(not IS_SOAK, reason="starts three processes; the tests above do the same calls")
def test_the_command_line_reaches_a_cluster_through_rays_client(
    workspace: Workspace, ray_cluster: ServedRay
) -> None:
    name_cluster(workspace, ray=ray_cluster.client)
    ref = workspace.shell("acme/tell", "echo hello")
    command = ["execute", ref, "--target", "remote:gpu", "--json", "--project"]
    environ = {**os.environ, **workspace.environ, "USER_SPACE": str(workspace.user)}

    done = subprocess.run(
        [sys.executable, "-m", "ryecore.cli", *command, str(workspace.project)],
        check=False, capture_output=True, env=environ,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout.decode()
    assert json.loads(done.stdout)["data"]["stdout"] == "hello\n"


def test_a_worker_of_another_version_says_so_and_runs_nothing(workspace: Workspace) -> None:
    from ryecore.remote.config import Remote, RemoteEntry
    from ryecore.remote.ray_cluster import RayCluster

    cluster = RayCluster(Remote("gpu", RemoteEntry(ray="auto")))

    with pytest.raises(RemoteError, match="has the version 99") as refused:
        cluster.start_runner("other", b'{"version": 99}', wait_s=30)

    assert refused.value.problem == "worker_refused"
    assert "same version" in str(refused.value)
