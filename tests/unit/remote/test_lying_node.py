"""A node that has the right key, and lies: its caller believes none of it, and isn't held up."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from ryecore import SigningKey
from ryecore.errors import RemoteError, RemoteUntrusted
from tests.lying import lie, sign_again
from tests.proxy import Fault, Proxy
from tests.remotes import connect
from tests.served_node import ServedNode
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

OTHER = SigningKey(bytes([9]) * 32)
RESULT = {"status": "success", "item_id": "tool:acme/hi", "data": 1}


@pytest.fixture
def proxy(node: ServedNode) -> Iterator[Proxy]:
    with Proxy(urlsplit(node.url).port or 0) as opened:
        yield opened


@pytest.fixture
def tool(workspace: Workspace, node: ServedNode, proxy: Proxy) -> str:
    connect(workspace, node, url=proxy.url, timeout_s=5)
    return workspace.python("acme/hi", "def execute(params, project_path):\n    return 1")


Tell = Callable[[SigningKey, dict[str, Any]], object]


@pytest.mark.parametrize(
    "tell",
    [
        lambda key, state: {**state, "thread_id": "another"},
        lambda key, state: {**state, "status": "running"},
        lambda key, state: {**state, "report": None},
        lambda key, state: {**state, "report": {}},
        lambda key, state: {**state, "report": {"_signature": 1}},
        lambda key, state: sign_again(OTHER, state),
        *(
            lambda key, state, name=name: sign_again(key, state, **{name: "a" * 64})
            for name in ("thread_id", "item_id", "caller", "node", "snapshot", "request_sha256")
        ),
        lambda key, state: sign_again(key, state, cost={"spend": -5}),
        lambda key, state: sign_again(key, state, status="running"),
        *(
            lambda key, state, result=result: sign_again(key, state, result=result)
            for result in (
                {}, {"status": "success"}, RESULT | {"status": 1}, RESULT | {"chain_elements": 1},
                RESULT | {"metadata": []}, {"error_type": [], "error": "x"}, {"error_type": "x"},
            )
        ),
        lambda key, state: [state],
        lambda key, state: b"",
        lambda key, state: b"\xff\xfe",
        lambda key, state: b"[" * 50_000,
        lambda key, state: json.dumps(state).replace('"data": 1', '"data": 1e999').encode(),
        lambda key, state: {**state, "report": {"a": json.loads("[" * 400 + "]" * 400)}},
        lambda key, state: b" " * (50 * 2**20),
    ],
)  # fmt: skip
async def test_no_lie_about_a_call_is_believed(
    workspace: Workspace, node: ServedNode, proxy: Proxy, tool: str, tell: Tell
) -> None:
    key = node.identity.key
    async with workspace.open() as rye:
        await rye.remotes.push()
        proxy.fail("POST /execute", lie(key, lambda state: tell(key, state)), times=9)
        with pytest.raises(RemoteUntrusted) as caught:
            await rye.execute(tool, target="remote")
    assert caught.value.next_step
    assert proxy.count("POST /execute") == 1


async def test_a_problem_is_shown_on_a_line_of_its_own_without_controls(
    workspace: Workspace, node: ServedNode, proxy: Proxy, tool: str
) -> None:
    problem = {
        "type": "forbidden",
        "title": "No\x1b]0;owned\x07 \u202etxet",
        "status": 403,
        "detail": "one\ntwo\r\x9b31m" + "x" * 10_000,
        "next_step": "Run:\nrm -rf /\ud800",
    }
    async with workspace.open() as rye:
        await rye.remotes.push()
        told = lie(node.identity.key, lambda _: problem, status=403)
        proxy.fail("POST /execute", told)
        with pytest.raises(RemoteError) as caught:
            await rye.execute(tool, target="remote")
    text = str(caught.value)
    assert caught.value.problem == "forbidden"
    assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e"} & set(text)
    assert len(text) < 3000
    text.encode()


@pytest.mark.parametrize("name", ["hacked", "", None, 5])
async def test_a_problem_that_the_protocol_lacks_is_not_believed(
    workspace: Workspace, node: ServedNode, proxy: Proxy, tool: str, name: object
) -> None:
    problem = {"type": name, "title": "x", "status": 418}
    async with workspace.open() as rye:
        await rye.remotes.push()
        proxy.fail("POST /execute", lie(node.identity.key, lambda _: problem, status=418))
        with pytest.raises(RemoteUntrusted):
            await rye.execute(tool, target="remote")


@pytest.mark.parametrize(
    "told",
    [[0, 1], [1, 0], [0], [1, 2, 3, 2, 1, 0]],
    ids=str,
)
async def test_a_node_that_never_has_enough_ends_the_push(
    workspace: Workspace, node: ServedNode, proxy: Proxy, tool: str, told: list[int]
) -> None:
    """It says of each object that it has a little of it, and another length each time."""
    times = 0

    def partial(answer: dict[str, Any]) -> dict[str, Any]:
        nonlocal times
        times += 1
        objects = [*answer["stored"], *(one["sha256"] for one in answer["partial"])]
        have_bytes = told[times % len(told)]
        listed = [{"sha256": one, "have_bytes": have_bytes} for one in objects]
        return {"stored": [], "partial": listed}

    def missing(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "missing": answer["missing"] or kept}

    kept: list[dict[str, Any]] = []
    key = node.identity.key
    async with workspace.open() as rye:
        plan = await rye.remotes.plan()
        kept += [{"sha256": one.sha256, "have_bytes": 0} for one in plan.snapshot.files]
        proxy.fail("POST /objects", lie(key, partial), times=1000)
        proxy.fail("POST /snapshots", lie(key, missing), times=1000)
        with pytest.raises(RemoteError):
            await rye.remotes.push()
    assert proxy.count("POST /objects") < 20


@pytest.mark.parametrize("step", ["POST /snapshots", "POST /objects", "POST /execute"])
async def test_a_changed_request_is_refused_by_the_node(
    workspace: Workspace, proxy: Proxy, tool: str, step: str
) -> None:
    for change in (
        lambda head, body: (head, body.replace(b"a", b"b", 1)),
        lambda head, body: (head.replace(b"POST /", b"POST //", 1), body),
        lambda head, body: (head.replace(b"nonce", b"Nonce", 1), body),
    ):
        proxy.fail(step, Fault(change_request=change))
        async with workspace.open() as rye:
            with pytest.raises(RemoteError) as caught:
                await rye.execute(tool, target="remote:gpu")
        assert caught.value.problem in ("unauthorized", "not_found")
