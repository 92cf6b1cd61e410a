"""The documented calls: a plain dict always."""

import inspect
import json

import pytest

from ryecore import CallContext, Rye, rye_execute, rye_fetch, rye_sign
from ryecore.calls import EXECUTE_KEYWORDS, answer
from ryecore.mcp_server.schemas import INPUT_SCHEMAS
from tests.thread_deps import DEPS, furnish
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def home(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    for name, value in (*workspace.environ.items(), ("USER_SPACE", str(workspace.user))):
        monkeypatch.setenv(name, value)
    return workspace


async def test_rye_execute_takes_what_rye_execute_takes_and_models_are_offered_a_part_of_it():
    keywords = set(inspect.signature(Rye.execute).parameters)
    assert keywords - set(EXECUTE_KEYWORDS.values()) == {"self", "ref", "output_log", "ctx"}
    assert set(EXECUTE_KEYWORDS.values()) <= keywords
    offered = set(INPUT_SCHEMAS["rye_execute"]["properties"])
    assert offered - set(EXECUTE_KEYWORDS) == {"item_id", "project_path"}


async def test_rye_fetch_gives_the_item(home):
    home.write("knowledge/k.md", "High.\n")
    response = await rye_fetch("knowledge:k", home.project)
    assert response["status"] == "success"
    assert "High." in str(response["content"])
    copied = await rye_fetch("knowledge:k", home.project, destination="user")
    assert copied["copied_to"] == "user"


@pytest.mark.parametrize(
    "wrong",
    [
        {"item_id": None},
        {"item_id": 7},
        {"item_id": "knowledge:none"},
        {"source": 7},
        {"destination": "system"},
        {"banana": 1},
        {"project_path": "/no/such/folder"},
    ],
    ids=repr,
)
async def test_rye_fetch_never_raises_for_what_a_caller_did_wrong(home, wrong):
    home.write("knowledge/k.md", "High.\n")
    response = await rye_fetch(**{"item_id": "knowledge:k", "project_path": home.project} | wrong)
    assert response["status"] == "error"
    assert response["error"]
    assert json.loads(json.dumps(response)) == response


async def test_rye_fetch_finds_items_by_a_query(home):
    home.write("knowledge/k.md", "High.\n")
    response = await rye_fetch(
        project_path=home.project, query="high", scope="rye.fetch.knowledge.*", limit=1
    )
    assert response["total"] == 1
    assert response["mode"] == "query"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "Provide item_id or query+scope"),
        ({"query": "x"}, "Provide item_id or query+scope"),
        ({"scope": "*"}, "Provide item_id or query+scope"),
        ({"item_id": "knowledge:k", "query": "x"}, "Provide item_id or query, not both"),
        ({"item_id": "knowledge:k", "limit": 3}, "Provide item_id or query, not both"),
        ({"query": "x", "scope": "ns.*"}, "scope must specify a kind"),
        ({"query": "x", "scope": "*", "destination": "user"}, "destination"),
        ({"query": '"', "scope": "*"}, "never closed"),
        ({"query": 7, "scope": "*"}, "text"),
    ],
    ids=repr,
)
async def test_rye_fetch_says_what_a_query_needs(home, wrong, message):
    response = await rye_fetch(project_path=home.project, **wrong)
    assert response["status"] == "error"
    assert message in str(response["error"])


async def test_an_open_rye_answers_within_a_callers_capabilities(workspace):
    workspace.write("knowledge/k.md", "High.\n")
    workspace.write("knowledge/l.md", "Low.\n")
    ctx = CallContext(capabilities=frozenset({"rye.fetch.knowledge.k"}))
    async with workspace.open() as rye:
        good = await answer("rye_fetch", rye, {"item_id": "knowledge:k"}, ctx)
        bad = await answer("rye_fetch", rye, {"item_id": "knowledge:l"}, ctx)
    assert good["status"] == "success"
    assert bad["status"] == "error"
    assert bad["item_id"] == "knowledge:l"


async def test_rye_sign_signs_for_the_person_here(home):
    home.write("knowledge/k.md", "High.\n", sign=False)
    home.write("knowledge/bom.md", b"\xef\xbb\xbfx", sign=False)
    response = await rye_sign("knowledge:*", home.project)
    assert response["status"] == "error"
    assert response["summary"] == "Signed 1/2 items, 1 failed."
    assert (await rye_fetch("knowledge:k", home.project))["status"] == "success"


@pytest.mark.parametrize(
    "wrong", [{"item_id": ""}, {"item_id": 7}, {"item_id": "knowledge:none"}, {"source": "system"}]
)
async def test_rye_sign_never_raises_for_what_a_caller_did_wrong(home, wrong):
    response = await rye_sign(**{"item_id": "knowledge:k", "project_path": home.project} | wrong)
    assert response["status"] == "error"
    assert response["error"]


async def test_signing_for_a_caller_with_capabilities_asks_the_host(workspace):
    workspace.write("knowledge/k.md", "High.\n", sign=False)
    ctx = CallContext(capabilities=frozenset({"rye.sign.knowledge.k"}))
    async with workspace.open() as rye:
        response = await answer("rye_sign", rye, {"item_id": "knowledge:k"}, ctx)
    assert response["error_type"] == "not_approved"


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("call", ["rye_execute", "rye_fetch", "rye_sign"])
@pytest.mark.parametrize("name", ["item_id", "source", "model", "target", "query", "timeout_s"])
@pytest.mark.parametrize("value", [7, True, 0.5, "\0", nested(3000)], ids="ibfsn")
async def test_no_argument_of_any_form_makes_a_call_raise(workspace, call, name, value):
    workspace.write(
        "directives/d.md", '# D\n\n```xml\n<directive name="d"/>\n```\n\nDo it.\n', sign=True
    )
    given = {"item_id": "directive:d"} | {name: value}
    async with workspace.open() as rye:
        response = await answer(call, rye, given)
    assert response["status"] == "error"
    assert json.loads(json.dumps(response)) == response


async def test_a_directive_forks_with_the_host_s_deps(home):
    furnish(home)
    given = {"item_id": "directive:acme/sum", "project_path": home.project, "thread": "fork"}
    done = await rye_execute(**given, parameters={"x": 4}, deps=DEPS)
    assert (done["state"], done["outputs"]) == ("completed", {"total": 7})
    few = await rye_execute(**given, parameters={"x": 4}, deps=DEPS, limit_overrides={"turns": 1})
    assert (few["status"], few["error_code"]) == ("error", "turns_exceeded")
    assert json.loads(json.dumps(few)) == few


async def test_a_forked_directive_goes_on_when_the_call_has_ended(home, monkeypatch):
    furnish(home)
    monkeypatch.setenv("PYTHONPATH", home.environ["PYTHONPATH"])
    given = {"parameters": {"x": 4}, "thread": "fork", "async": True, "deps": DEPS}
    done = await rye_execute("directive:acme/sum", home.project, **given)
    assert (done["status"], done["state"]) == ("success", "running")
    async with home.open() as rye:
        report = await rye.threads.wait(done["thread_id"], timeout_s=60)
    assert report.result["outputs"] == {"total": 7}


@pytest.mark.parametrize("more", [{}, {"async": True}])
async def test_without_models_a_fork_is_refused(home, monkeypatch, more):
    furnish(home)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    given = {"parameters": {"x": 4}, "thread": "fork"} | more
    done = await rye_execute("directive:acme/sum", home.project, **given)
    assert done["status"] == "error"
    assert "needs models" in done["error"]
    assert "--deps" in done["error"]


async def test_a_model_can_not_name_deps(home):
    async with home.open() as rye:
        done = await answer(
            "rye_execute", rye, {"item_id": "directive:acme/sum", "deps": "os:abort"}
        )
    assert "Unknown arguments: deps" in done["error"]


@pytest.mark.parametrize("call", [rye_execute, rye_fetch, rye_sign])
async def test_an_id_that_is_no_string_is_called_so(home, call):
    refused = await call(item_id=5, project_path=home.project)
    assert refused["error"].startswith("item_id must be a string, not int.")
