"""Opening a Rye, its verbs, and rye_execute."""

import json
import os
import warnings

import anyio
import pytest

from ryecore import CallContext, Rye, Space, rye_execute
from ryecore.errors import ConfigError, RyeClosed, RyeError, SigningError, UnsignedItem
from ryecore.items.spaces import built_in_space
from tests.workspace import BASH, PRIMITIVE, Workspace

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("path", ["", "/nowhere/at/all", "a\0b", None, 3, "~nobody-of-that-name/x"])
async def test_a_project_that_is_no_folder_is_refused(path):
    with pytest.raises(ConfigError, match="not a folder"):
        Rye.open(path)


async def test_a_file_is_no_project(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError):
        Rye.open(tmp_path / "file")


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "~nobody-of-that-name/x", 3, b"x"])
@pytest.mark.parametrize("argument", ["user_space", "cache_dir"])
async def test_another_path_that_can_be_no_folder_is_refused(workspace, path, argument):
    with pytest.raises(ConfigError, match="can't be a folder"):
        workspace.open(**{argument: path})


async def test_a_user_space_in_the_home_folder_of_nobody_is_refused(workspace):
    with pytest.raises(ConfigError, match="user space '~nobody-of-that-name'"):
        Rye.open(workspace.project, environ={"USER_SPACE": "~nobody-of-that-name"})


async def test_a_project_needs_no_folder_of_items(workspace):
    async with workspace.open() as rye:
        done = await rye.execute("tool:rye/bash", {"command": "echo hi"})
    assert done.data["stdout"] == "hi\n"


async def test_user_space_is_the_argument_then_the_variable_then_the_home_folder(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    environ = {"HOME": str(tmp_path / "home")}
    assert Rye.open(project, environ=environ).spaces.user.root == tmp_path / "home/.ai"
    environ["USER_SPACE"] = str(tmp_path / "variable")
    assert Rye.open(project, environ=environ).spaces.user.root == tmp_path / "variable/.ai"
    opened = Rye.open(project, environ=environ, user_space=tmp_path / "argument")
    assert opened.spaces.user.root == tmp_path / "argument/.ai"


@pytest.mark.parametrize("path", ["", ".", "here", "./here", "../here", " /here"])
@pytest.mark.parametrize("name", ["HOME", "USER_SPACE"])
async def test_an_empty_or_relative_home_or_user_space_is_refused(workspace, name, path):
    environ = {"HOME": str(workspace.user), name: path}
    with pytest.raises(ConfigError, match=f"{name} is {path!r}") as refused:
        Rye.open(workspace.project, environ=environ)
    assert refused.value.next_step == "Set HOME or USER_SPACE to an absolute path."


@pytest.mark.parametrize("home", ["", "here"])
async def test_a_tilde_needs_an_absolute_home(workspace, monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    for options in (
        {"user_space": "~"},
        {"user_space": "~/here"},
        {"environ": {}},
        {"environ": {"USER_SPACE": "~"}},
        {"user_space": workspace.user, "cache_dir": "~/here"},
    ):
        with pytest.raises(ConfigError, match="can't be a folder"):
            Rye.open(workspace.project, **options)


async def test_an_empty_path_of_a_user_space_is_refused(workspace):
    with pytest.raises(ConfigError, match="user space '' can't be a folder"):
        Rye.open(workspace.project, user_space="")


async def test_an_absolute_user_space_needs_no_home(workspace):
    environ = {"HOME": "", "USER_SPACE": str(workspace.user)}
    assert Rye.open(workspace.project, environ=environ).spaces.user.root == workspace.user / ".ai"


async def test_opening_writes_nothing(workspace):
    before = sorted(workspace.root.rglob("*"))
    async with workspace.open():
        pass
    assert sorted(workspace.root.rglob("*")) == before


async def test_a_key_that_the_host_passes_counts(workspace, tmp_path):
    (tmp_path / "other").mkdir()
    author = Workspace(tmp_path / "other")
    author.shell("a/t", "echo x")
    signed = author.path("tools/a/t.sh").read_bytes()
    workspace.write("tools/a/t.sh", signed, sign=False)
    async with workspace.open() as rye:
        with pytest.raises(RyeError):
            await rye.execute("tool:a/t")
    for form in (author.key.public, author.key.public.pem, author.key.public.pem.decode()):
        async with workspace.open(trusted_keys=[form]) as rye:
            assert (await rye.execute("tool:a/t")).success


async def test_sealed_files_go_where_the_host_says(workspace, tmp_path):
    ref = workspace.shell("a/t", "true")
    async with workspace.open(cache_dir=tmp_path / "cache") as rye:
        await rye.execute(ref)
    assert list((tmp_path / "cache").iterdir())
    assert not (workspace.user / ".ai/cache").exists()


async def test_dev_mode_is_the_letter_one_alone_and_says_so(workspace):
    workspace.write("tools/a/t.sh", f"# __executor_id__ = '{BASH}'\necho x\n", sign=False)
    for value in ("0", "true", "yes", ""):
        async with workspace.open(environ={**workspace.environ, "RYE_DEV_MODE": value}) as rye:
            with pytest.raises(UnsignedItem):
                await rye.execute("tool:a/t")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with workspace.open(environ={**workspace.environ, "RYE_DEV_MODE": "1"}) as rye:
            done = await rye.execute("tool:a/t")
    assert done.success
    assert done.to_dict()["metadata"]["integrity"] == "unverified"
    assert done.to_dict()["chain_elements"][0]["integrity"] == "unverified"
    assert len(caught) >= 2
    assert "unverified" in str(done)


async def test_a_result_has_the_documented_form(workspace):
    ref = workspace.shell("a/t", "echo '{\"a\": 1}'")
    async with workspace.open() as rye:
        document = (await rye.execute(ref)).to_dict()
    duration = document["metadata"]["duration_ms"]
    assert isinstance(duration, int)
    path = str(workspace.path("tools/a/t.sh"))
    elements = document.pop("chain_elements")
    assert document == {
        "status": "success",
        "type": "tool",
        "item_id": "tool:a/t",
        "data": {"a": 1},
        "chain": ["a/t", BASH, PRIMITIVE],
        "metadata": {"duration_ms": duration},
    }
    assert elements[0]["item_id"] == "a/t"
    assert (elements[0]["path"], elements[0]["space"]) == (path, "project")
    assert len(elements[0]["integrity"]) == 64
    assert [one["space"] for one in elements] == ["project", "system:ryecore", "built-in"]


async def test_a_failed_run_has_the_documented_form(workspace):
    ref = workspace.shell("a/t", "echo why >&2; exit 1")
    async with workspace.open() as rye:
        document = (await rye.execute(ref)).to_dict()
    assert (document["status"], document["error"]) == ("error", "why")
    assert document["data"]["return_code"] == 1


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "256", None, 2**40], ids=repr)
async def test_a_bound_for_warm_starts_that_is_none_is_refused(workspace, wrong):
    with pytest.raises(ConfigError, match="warm_memory_mib") as refusal:
        workspace.open(warm_memory_mib=wrong)
    assert "0 (every process starts cold)" in refusal.value.next_step


async def test_trace_shows_the_chain_and_runs_nothing(workspace):
    ref = workspace.shell("a/t", "touch ran")
    async with workspace.open() as rye:
        traced = await rye.trace(ref)
        assert traced.item_id == ref
        assert traced.chain.ids == ("a/t", BASH, PRIMITIVE)
        assert traced.to_dict()["trace"][0]["step"] == "resolve"
        with pytest.raises(RyeError) as refusal:
            await rye.trace("tool:a/nowhere")
    assert refusal.value.trace[-1]["failed"]
    assert not (workspace.project / "ran").exists()


async def test_the_schema_of_a_tool_is_what_it_declares(workspace):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    async with workspace.open() as rye:
        assert await rye.schema(workspace.shell("a/t", "true", config_schema=schema)) == schema
        assert await rye.schema(workspace.shell("a/u", "true")) is None


async def test_system_space_is_the_built_in_bundle_whichever_bundles_there_are(workspace):
    other = Space("system", workspace.root / "other/.ai", "other")
    for bundles in ((), (other,), (other, built_in_space())):
        workspace.yaml("a/r", config={"command": "/bin/echo", "args": ["{system_space}"]})
        async with workspace.open(system_spaces=bundles) as rye:
            done = await rye.execute("tool:a/r")
        assert done.data["stdout"].strip() == str(built_in_space().root)


async def test_a_closed_rye_refuses_every_verb_that_needs_it(workspace):
    ref = workspace.shell("a/t", "touch ran")
    rye = workspace.open()
    await rye.aclose()
    await rye.aclose()
    for call in (rye.execute, rye.trace, rye.schema):
        with pytest.raises(RyeClosed):
            await call(ref)
    assert not (workspace.project / "ran").exists()
    assert "closed" in repr(rye)


async def test_closing_cancels_what_runs_and_leaves_no_process(workspace):
    ref = workspace.shell("a/t", "echo $$ > new; mv new pid; read -r < <(sleep 600)")
    refused: list[BaseException] = []
    rye = workspace.open()

    async def call() -> None:
        try:
            await rye.execute(ref)
        except RyeClosed as refusal:
            refused.append(refusal)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            while not (workspace.project / "pid").exists():
                await anyio.lowlevel.checkpoint()
            await rye.aclose()
            with pytest.raises(ProcessLookupError):
                os.kill(int((workspace.project / "pid").read_text()), 0)
    assert len(refused) == 1


async def test_all_who_close_it_at_once_come_back(workspace):
    ref = workspace.shell("a/t", "touch begun; read -r < <(sleep 600)")
    rye = workspace.open()

    async def call() -> None:
        with pytest.raises(RyeClosed):
            await rye.execute(ref)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            while not (workspace.project / "begun").exists():
                await anyio.lowlevel.checkpoint()
            for _ in range(3):
                tasks.start_soon(rye.aclose)


async def test_rye_shows_nothing_secret(workspace):
    workspace.environ["GITHUB_TOKEN"] = "hunter2"
    async with workspace.open() as rye:
        assert "hunter2" not in repr(rye) + repr(vars(rye).keys())
        assert "hunter2" not in repr(rye.keys)


async def test_signing_needs_a_key(workspace):
    (workspace.keys.folder / "private_key.pem").unlink()
    workspace.write("tools/a/t.sh", "", sign=False)
    async with workspace.open() as rye:
        with pytest.raises(SigningError):
            rye.sign("tool:a/t")
        with pytest.raises(SigningError):
            rye.trust_project()


async def test_one_rye_serves_many_calls_at_once(workspace):
    ref = workspace.shell("a/t", "cat")
    answers: dict[int, object] = {}
    async with workspace.open() as rye, anyio.create_task_group() as tasks:

        async def call(number: int) -> None:
            answers[number] = (await rye.execute(ref, {"n": number})).data

        for number in range(50):
            tasks.start_soon(call, number)
    assert answers == {number: {"n": number} for number in range(50)}


# rye_execute: what models and MCP clients call


@pytest.fixture
def environ(workspace, monkeypatch):
    for name, value in {**workspace.environ, "USER_SPACE": str(workspace.user)}.items():
        monkeypatch.setenv(name, value)
    return workspace


async def test_rye_execute_gives_the_same_dict_as_to_dict(environ):
    ref = environ.shell("a/t", "cat")
    answer = await rye_execute(item_id=ref, project_path=environ.project, parameters={"a": 1})
    async with environ.open() as rye:
        expected = (await rye.execute(ref, {"a": 1})).to_dict()
    answer["metadata"] = expected["metadata"] = None
    assert answer == expected


async def test_rye_execute_takes_every_documented_argument(environ):
    ref = environ.shell("a/t", "touch ran")
    answer = await rye_execute(
        item_id=ref,
        project_path=str(environ.project),
        parameters={},
        dry_run=True,
        target="local",
        thread="inline",
        model=None,
        limit_overrides=None,
        trace=True,
        timeout_s=7,
        **{"async": False},
    )
    assert answer["status"] == "validation_passed"
    assert answer["plan"]["timeout_s"] == 7
    assert answer["trace"]
    assert not (environ.project / "ran").exists()


WRONG = [
    {"item_id": "tool:a/nowhere"},
    {"item_id": "a b"},
    {"item_id": ""},
    {"item_id": None},
    {"item_id": 3},
    {"item_id": ["tool:a/t"]},
    {"project_path": "/nowhere"},
    {"project_path": None},
    {"project_path": 3},
    {"project_path": ""},
    {"parameters": []},
    {"parameters": "x"},
    {"parameters": {1: 2}},
    {"parameters": {"a": ...}},
    {"parameters": {"a": float("nan")}},
    {"parameters": {"need": 1}},
    {"target": "moon"},
    {"target": None},
    {"target": "remote"},
    {"thread": "fork"},
    {"thread": None},
    {"async_": True, "dry_run": True},
    {"model": "a/b"},
    {"limit_overrides": {"turns": 1}},
    {"timeout_s": "soon"},
    {"timeout_s": -1},
    {"timeout_s": float("nan")},
    {"banana": 1},
]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
async def test_rye_execute_never_raises_for_what_a_caller_did_wrong(environ, wrong):
    schema = {"type": "object", "properties": {"need": {"type": "string"}}}
    ref = environ.shell("a/t", "touch ran", config_schema=schema)
    answer = await rye_execute(
        **{"item_id": ref, "project_path": environ.project, "parameters": {}} | wrong
    )
    assert answer["status"] == "error"
    assert answer["error"]
    assert "item_id" in answer
    assert json.loads(json.dumps(answer)) == answer
    assert not (environ.project / "ran").exists()


async def test_rye_execute_gives_a_dict_for_what_a_tool_did_wrong(environ):
    for script in ("exit 3", "kill -9 $$", "echo '{\"success\": false}'", "printf '\\377'; exit 1"):
        ref = environ.shell("a/t", script)
        answer = await rye_execute(item_id=ref, project_path=environ.project)
        assert answer["status"] == "error"
        assert json.dumps(answer)


async def test_a_capability_context_reaches_the_action(workspace):
    ref = workspace.shell("a/t", "true")
    async with workspace.open() as rye:
        with pytest.raises(RyeError, match="capability"):
            await rye.execute(ref, ctx=CallContext(capabilities=frozenset()))
