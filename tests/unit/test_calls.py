"""The documented calls: a plain dict always."""

import inspect
import json
from collections.abc import Iterable
from typing import cast

import pytest
from attrs import fields

from ryecore import CallContext, Rye, SyncRye, rye_execute, rye_fetch, rye_sign
from ryecore.actions.request import ExecuteRequest
from ryecore.calls import EXECUTE_KEYWORDS, _ExecuteMore, answer
from ryecore.cli.execute import execute as execute_command
from ryecore.mcp_server.schemas import INPUT_SCHEMAS
from ryecore.runs.ports import Dispatcher
from ryecore.threads.calls.item_tools import item_tool
from tests.thread_deps import DEPS, furnish
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


@pytest.fixture
def home(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    for name, value in (*workspace.environ.items(), ("USER_SPACE", str(workspace.user))):
        monkeypatch.setenv(name, value)
    return workspace


def _options(names: Iterable[str]) -> set[str]:
    """Return the keywords of `Rye.execute` that a place's own names stand for."""
    return {EXECUTE_KEYWORDS.get(name, name) for name in names}


def _places() -> dict[str, tuple[set[str], set[str]]]:
    """Return each place that offers the options of execute, with those that it leaves out."""
    signature = inspect.signature
    rye_execute_takes = {*signature(rye_execute).parameters, *_ExecuteMore.__annotations__}
    item_schema = item_tool("execute", cast("Dispatcher", None)).parameters
    by_host = {"output_log"}
    # Who applies what was collected (rye threads pull), and knows whom a run is for.
    by_person = by_host | {"pull", "labels"}
    per_process = {"timeout_s", "trace"}  # what a model isn't offered
    return {
        "ryecore.sync.SyncRye.execute": (_options(signature(SyncRye.execute).parameters), set()),
        "ryecore.actions.request.ExecuteRequest": (
            {one.name for one in fields(ExecuteRequest)}, {"labels"},  # they stand in the context
        ),
        "ryecore.calls.EXECUTE_KEYWORDS": (set(EXECUTE_KEYWORDS.values()), by_person),
        "the parameters of ryecore.calls.rye_execute": (_options(rye_execute_takes), by_person),
        "the options of ryecore.cli.execute": (
            {str(one.name) for one in execute_command.params}, by_host,
        ),
        "ryecore.mcp_server.schemas.INPUT_SCHEMAS": (
            _options(INPUT_SCHEMAS["rye_execute"]["properties"]),
            by_person | per_process | {"idempotency_key"},  # that one stands in the call's _meta
        ),
        "ryecore.threads.calls.item_tools": (
            _options(item_schema["properties"]),
            by_person | per_process | {"idempotency_key"},
        ),
    }  # fmt: skip


_OF_A_PLACE = {
    "self", "ref", "ctx", "item", "item_id", "project_path", "deps", "more",
    "params", "as_json", "muted_hooks", "push_plan",
}  # fmt: skip
"""What names the item, the caller or the place, and isn't an option of execute."""


def test_each_place_that_offers_execute_offers_all_its_options():
    options = set(inspect.signature(Rye.execute).parameters) - _OF_A_PLACE
    wrong = []
    for place, (offered, left_out) in _places().items():
        wrong += [f"{place} lacks {name!r}." for name in sorted(options - left_out - offered)]
        unknown = sorted(offered - _OF_A_PLACE - options)
        wrong += [f"{place} offers {name!r}, which Rye.execute doesn't take." for name in unknown]
        stale = sorted(left_out & offered)
        wrong += [f"{place} offers {name!r}, which this test says it omits." for name in stale]
    assert not wrong, "\n".join(wrong)


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
    assert "needs models" in str(done["error"])
    assert "--deps" in str(done["error"])


async def test_a_model_can_not_name_deps(home):
    async with home.open() as rye:
        done = await answer(
            "rye_execute", rye, {"item_id": "directive:acme/sum", "deps": "os:abort"}
        )
    assert "Unknown arguments: deps" in str(done["error"])


@pytest.mark.parametrize("call", [rye_execute, rye_fetch, rye_sign])
async def test_an_id_that_is_no_string_is_called_so(home, call):
    refused = await call(item_id=5, project_path=home.project)
    assert refused["error"].startswith("item_id must be a string, not int.")
