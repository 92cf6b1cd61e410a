"""`rye remote`, and `rye execute --push-plan`."""

import os
from collections.abc import Iterator

import pytest

from tests.remotes import name_remote
from tests.served_node import ServedNode, served_node
from tests.unit.cli.conftest import Run, run_on_terminal
from tests.unit.remote.test_config import GPU, KEY
from tests.workspace import Workspace


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNode]:
    """A node that runs, with no callers yet."""
    with served_node(tmp_path_factory.mktemp("operator") / "node") as served:
        yield served


def test_a_plan_shows_what_would_travel_and_what_not(workspace: Workspace, run: Run) -> None:
    workspace.shell("acme/a", "true")
    (workspace.project / "src").mkdir()
    (workspace.project / "src/a.py").write_text("1")
    (workspace.project / "src/.env.local").write_text("TOKEN=1")
    workspace.write(
        "config/remotes/remotes.yaml", GPU + '    push: {include: ["src/**", "no/*"]}\n'
    )
    for command in (
        ("remote", "plan", "gpu"),
        ("remote", "plan"),
        ("execute", "tool:acme/a", "--push-plan"),
        ("execute", "tool:acme/a", "--target", "remote:gpu", "--push-plan"),
    ):
        plan = run(*command, "--json").json
        assert [one["path"] for one in plan["files"] if one["space"] == "project"] == [
            ".ai/tools/acme/a.sh",
            "src/a.py",
        ]
        assert plan["size_bytes"] == sum(one["size_bytes"] for one in plan["files"])
        left = {one["path"]: one["reason"] for one in plan["left_out"]}
        assert left["src/.env.local"] == "may hold variables that are secret"
        assert plan["unmatched_patterns"] == ["no/*"]
    shown = run("remote", "plan").out
    assert "src/a.py" in shown
    assert "src/.env.local  may hold variables that are secret" in shown


def test_remotes_are_listed_with_their_fingerprints(workspace: Workspace, run: Run) -> None:
    assert "rye remote add" in run("remote", "list").out
    assert run("remote", "list", "--json").json["remotes"] == []
    workspace.write("config/remotes/remotes.yaml", GPU)
    (listed,) = run("remote", "list", "--json").json["remotes"]
    assert (listed["name"], listed["fingerprint"]) == ("gpu", KEY.fingerprint)
    assert KEY.fingerprint in run("remote", "list").out


def test_the_help_names_queues_and_clusters_beside_nodes(run: Run) -> None:
    for command in (("execute", "--help"), ("remote", "--help")):
        told = " ".join(run(*command).out.split())
        for kind in ("node", "queue", "Ray cluster"):
            assert kind in told, command
    refused = run("execute", "tool:acme/x", "--target", "remote").err
    assert "rye remote add-queue" in refused
    assert "add-cluster" in refused


def test_an_unknown_remote_is_refused(workspace: Workspace, run: Run) -> None:
    del workspace
    done = run("execute", "tool:acme/a", "--target", "remote:gpu", "--push-plan")
    assert done.code == 2
    assert "rye remote add gpu URL" in done.err


def test_a_node_is_added_checked_pushed_to_used_and_removed(
    workspace: Workspace, run: Run, node: ServedNode
) -> None:
    node.allow(workspace.key)
    fingerprint = node.identity.fingerprint
    ref = workspace.python("acme/two", "def execute(params, project_path):\n    return 2")
    added = run("remote", "add", "gpu", node.url, "--key", fingerprint, "--json")
    assert (added.code, added.json["fingerprint"]) == (0, fingerprint)
    assert added.json["path"] == str(workspace.path("config/remotes/remotes.yaml", "user"))
    checked = run("remote", "check", "gpu")
    assert (checked.code, fingerprint in checked.out) == (0, True)
    assert run("remote", "check", "--json").json["max_running"] > 0
    pushed = run("remote", "push", "--json").json
    assert pushed["objects"] == 2
    assert "nothing was sent" in run("remote", "push").out
    done = run("execute", ref, "--target", "remote:gpu", "--json")
    assert (done.code, done.json.get("data")) == (0, 2), done.out
    assert run("remote", "remove", "gpu").code == 0
    assert run("remote", "list", "--json").json["remotes"] == []
    gone = run("execute", ref, "--target", "remote:gpu")
    assert (gone.code, "rye remote add gpu URL" in gone.err) == (2, True)


def test_a_cluster_is_added_with_its_resources(workspace: Workspace, run: Run) -> None:
    added = run(
        "remote", "add-cluster", "big", "ray://head:10001", "--resource", "GPU=2", "--resource",
        "disk=0.5", "--travels", "--default", "--json",
    )  # fmt: skip
    assert added.code == 0, added.err
    (entry,) = workspace.open().remotes.list()
    assert (entry.name, entry.settings.ray) == ("big", "ray://head:10001")
    assert dict(entry.settings.resources) == {"GPU": 2.0, "disk": 0.5}
    assert entry.settings.travels
    for wrong, why in (
        (("other", "head:6379"), "must be auto"),
        (("other", "auto", "--resource", "GPU"), "isn't an amount"),
        (("other", "auto", "--resource", "GPU=1.5"), "whole number"),
        (("big",), "already"),
    ):
        refused = run("remote", "add-cluster", *wrong)
        assert (refused.code, why in refused.err) == (2, True), refused.err


@pytest.mark.parametrize(
    ("command", "address"),
    [("add-cluster", "auto"), ("add-queue", "postgresql://db.example/agents?queue=batch")],
)
def test_more_files_travel_to_a_queue_and_a_cluster(
    workspace: Workspace, run: Run, command: str, address: str
) -> None:
    include = ("--include", "src/**", "--include", "data")
    alone = run("remote", command, "far", address, *include)
    assert (alone.code, "--travels" in alone.err) == (2, True), alone.err
    wrong = run("remote", command, "far", address, "--travels", "--include", "../x")
    assert (wrong.code, "--include '../x'" in wrong.err) == (2, True), wrong.err
    added = run("remote", command, "far", address, "--travels", *include)
    assert added.code == 0, added.err
    (entry,) = workspace.open().remotes.list()
    assert (entry.settings.travels, entry.settings.push.include) == (True, ("src/**", "data"))


def test_a_list_has_clusters_and_queues_besides_nodes(workspace: Workspace, run: Run) -> None:
    clusters = "  big: {ray: auto, resources: {GPU: 2}, travels: true, push: {include: [a/*]}}\n"
    queue = "  batch: {queue: 'postgresql://db.example/rye?queue=batch'}\n"
    workspace.write("config/remotes/remotes.yaml", f"{GPU}{clusters}{queue}")
    listed = {one["name"]: one for one in run("remote", "list", "--json").json["remotes"]}
    assert listed["big"] == {
        "name": "big", "ray": "auto", "resources": {"GPU": 2.0}, "patience_s": 60.0,
        "travels": True, "include": ["a/*"],
    }  # fmt: skip
    assert "batch" in listed["batch"]["queue"]
    assert (listed["batch"]["travels"], listed["batch"]["include"]) == (False, [])
    shown = run("remote", "list").out
    assert "the Ray cluster of this machine" in shown
    assert "db.example" in shown


def test_a_queue_is_added_without_a_password_and_removed(workspace: Workspace, run: Run) -> None:
    address = "postgresql://rye@db.example/agents?schema=shop&queue=batch"
    added = run("remote", "add-queue", "batch", address, "--priority", "7", "--travels", "--json")
    assert added.json["status"] == "success"
    text = workspace.path("config/remotes/remotes.yaml", "user").read_text()
    assert f"queue: {address}" in text
    assert "db.example" in run("remote", "list").out
    [found] = workspace.open().remotes.list()
    queue = found.settings.queue
    assert queue is not None
    assert (queue.name, found.settings.priority, found.settings.travels) == ("batch", 7, True)
    again = run("remote", "add-queue", "batch", address)
    assert "already" in again.err
    for secret in ("rye:s3cret@db.example/agents", "db.example/agents?password=s3cret"):
        told = run("remote", "add-queue", "other", f"postgresql://{secret}")
        assert (told.code, "password" in told.err) == (2, True)
        assert "s3cret" not in told.err
    assert run("remote", "remove", "batch", "--json").json["status"] == "success"
    assert workspace.open().remotes.list() == ()


def test_a_queue_and_a_node_are_added_to_a_file_that_is_json(
    workspace: Workspace, run: Run, node: ServedNode
) -> None:
    address = "postgresql://rye@db.example:5432/agents?schema=shop"
    first = {"remotes": {"first": {"queue": address}}}
    workspace.write("config/remotes/remotes.yaml", first)
    assert run("remote", "add-queue", "batch", address, "--in-project").code == 0
    lab = ("lab", node.url, "--key", node.identity.fingerprint)
    assert run("remote", "add", *lab, "--in-project").code == 0
    listed = run("remote", "list", "--json").json["remotes"]
    assert [one["name"] for one in listed] == ["batch", "first", "lab"]


def test_comments_and_other_remotes_stay_when_one_is_added_or_removed(
    workspace: Workspace, run: Run, node: ServedNode
) -> None:
    workspace.write("config/remotes/remotes.yaml", f"# ours\n{GPU}    timeout_s: 9  # slow\n")
    fingerprint = node.identity.fingerprint
    options = ("--key", fingerprint, "--in-project", "--default", "--include", "src/**")
    assert run("remote", "add", "lab", node.url, *options).code == 0
    text = workspace.path("config/remotes/remotes.yaml").read_text()
    assert "# ours" in text
    assert "timeout_s: 9  # slow" in text
    listed = run("remote", "list", "--json").json["remotes"]
    assert [(one["name"], one["include"]) for one in listed] == [("gpu", []), ("lab", ["src/**"])]
    again = run("remote", "add", "lab", node.url, *options)
    assert (again.code, "already" in again.err) == (2, True)
    assert "--in-project" in run("remote", "remove", "lab").err
    assert run("remote", "remove", "lab", "--in-project").code == 0
    assert [one["name"] for one in run("remote", "list", "--json").json["remotes"]] == ["gpu"]
    assert "default" not in workspace.path("config/remotes/remotes.yaml").read_text()


def test_a_key_is_confirmed_or_nothing_is_written(
    workspace: Workspace, run: Run, node: ServedNode
) -> None:
    path = workspace.path("config/remotes/remotes.yaml", "user")
    asked = run("remote", "add", "gpu", node.url)
    assert (asked.code, "--key FINGERPRINT" in asked.err) == (2, True)
    assert node.identity.fingerprint in asked.err
    other = run("remote", "add", "gpu", node.url, "--key", KEY.fingerprint)
    assert (other.code, f"shows the key {node.identity.fingerprint}" in other.err) == (2, True)
    assert f"another one: '{KEY.fingerprint}'" in other.err
    assert not path.exists()


def test_a_person_on_a_terminal_is_asked(workspace: Workspace, node: ServedNode) -> None:
    path = workspace.path("config/remotes/remotes.yaml", "user")
    for answer, is_written in (("n", False), ("y", True)):
        shown = run_on_terminal(workspace, "remote", "add", "gpu", node.url, typed=f"{answer}\n")
        assert node.identity.fingerprint in shown
        assert path.exists() == is_written


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("a b", "https://x"), "can't be the name of a remote"),
        (("gpu", "ftp://x"), "must begin with https://"),
        (("gpu", "http://gpu.example"), "--plain-http"),
        (("gpu", "https://x", "--include", "../x"), "--include '../x'"),
        (("gpu", "http://127.0.0.1:1"), "can't be reached"),
    ],
)
def test_what_can_not_be_a_remote_is_refused(
    workspace: Workspace, run: Run, arguments: tuple[str, ...], error: str
) -> None:
    done = run("remote", "add", *arguments, "--key", KEY.fingerprint)
    assert (done.code, error in done.err) == (2, True), done.err
    assert "Traceback" not in done.err
    assert not workspace.path("config/remotes/remotes.yaml", "user").exists()


def test_an_unsigned_file_is_not_signed_by_adding_to_it(
    workspace: Workspace, run: Run, node: ServedNode
) -> None:
    path = workspace.write("config/remotes/remotes.yaml", GPU, sign=False)
    options = ("--key", node.identity.fingerprint, "--in-project")
    done = run("remote", "add", "lab", node.url, *options)
    assert done.code == 2
    assert path.read_text() == GPU


def test_a_node_with_another_key_is_not_trusted(
    workspace: Workspace, run: Run, node: ServedNode
) -> None:
    name_remote(workspace, node.url, KEY)
    checked = run("remote", "check")
    assert (checked.code, f"and not {KEY.fingerprint}" in checked.err) == (2, True)
    ref = workspace.shell("acme/a", "true")
    done = run("execute", ref, "--target", "remote", "--json")
    assert (done.code, done.json["error_type"]) == (2, "remote_untrusted")


@pytest.mark.parametrize(
    ("arguments", "error_type"),
    [
        (("remote", "check", "lab"), "input"),
        (("remote", "plan", "lab"), "input"),
        (("remote", "push", "lab"), "input"),
        (("remote", "remove", "lab"), "input"),
        (("remote", "add", "a b", "https://x"), "input"),
        (("remote", "add", "lab", "{url}"), "input"),
        (("remote", "add", "lab", "{url}", "--key", "wrong"), "remote_untrusted"),
        (("remote", "add", "gpu", "{url}", "--key", "{key}", "--in-project"), "input"),
        (("remote", "add", "lab", "http://127.0.0.1:1"), "remote_unavailable"),
        (("remote", "check", "gpu"), "remote"),
        (("remote", "push", "gpu"), "remote"),
        (("execute", "{ref}", "--target", "remote:lab"), "input"),
        (("execute", "{ref}", "--target", "remote:lab", "--push-plan"), "input"),
        (("execute", "{ref}", "--target", "elsewhere"), "unsupported"),
        (("execute", "{ref}", "--target", "remote:gpu"), "remote"),
        (("execute", "{ref}", "--target", "remote:gpu", "--pull"), "remote"),
        (("execute", "{ref}", "--target", "remote:gpu", "--dry-run"), "unsupported"),
        (("execute", "{ref}", "--target", "remote:gpu", "--trace"), "input"),
        (("threads", "pull", "nothing"), "thread_not_found"),
    ],
    ids=lambda one: one if isinstance(one, str) else " ".join(one),
)
def test_each_refusal_is_one_json_document_with_the_next_step(
    workspace: Workspace, run: Run, node: ServedNode, arguments: tuple[str, ...], error_type: str
) -> None:
    text = f"url: {node.url}\n    node_key: |\n      "
    text += node.identity.key.public.pem.decode().replace("\n", "\n      ").rstrip()
    workspace.write("config/remotes/remotes.yaml", f"remotes:\n  gpu:\n    {text}\n")
    ref = workspace.shell("acme/a", "true")
    known = {"url": node.url, "key": node.identity.fingerprint, "ref": ref}
    done = run(*(one.format(**known) for one in arguments), "--json")
    assert (done.code, done.err) == (2, "")
    document = done.json
    assert {"status", "error", "error_type", "next_step"} <= document.keys()
    assert document.keys() <= {
        "status", "error", "error_type", "next_step", "item_id", "metadata", "chain", "trace",
    }  # fmt: skip
    assert (document["status"], document["error_type"]) == ("error", error_type)
    assert document["error"].endswith(document["next_step"])


def test_a_person_sees_how_far_a_push_is(workspace: Workspace, node: ServedNode) -> None:
    node.allow(workspace.key)
    name_remote(workspace, node.url, node.identity.key.public, more={"push": '{include: ["data"]}'})
    (workspace.project / "data").write_bytes(os.urandom(9 * 2**20))
    ref = workspace.shell("acme/a", "echo done there")
    shown = run_on_terminal(workspace, "execute", ref, "--target", "remote:gpu")
    assert "pushing  ████" in shown
    assert "9.4 MB of 9.4 MB" in shown
    assert shown.rindex("done there") > shown.rindex("pushing")
    again = run_on_terminal(workspace, "execute", ref, "--target", "remote:gpu")
    assert "pushing" not in again
    assert "done there" in again


def test_metrics_are_printed_for_a_key_with_their_scope(
    workspace: Workspace, node: ServedNode, run: Run
) -> None:
    name_remote(workspace, node.url, node.identity.key.public)
    node.allow(workspace.key)
    refused = run("remote", "metrics", "gpu")
    node.allow(workspace.key, scopes=("rye.node.metrics",))
    printed = run("remote", "metrics", "gpu")

    assert (refused.code, printed.code) == (2, 0)
    assert "rye.node.metrics" in refused.err
    assert "\nryecore_node_requests_total{" in printed.out
