"""Nothing that a run is given raises what its signed file and its caller grant."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from ryecore.errors import GraphInvalid, InputError
from ryecore.policy import CallContext
from ryecore.testing import call, say
from ryecore.tools import tool
from tests.unit.graph.asking import Asking, agent, asks, gives

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


@pytest.fixture
def anyio_backend() -> str:
    """What is granted is no matter of the loop."""
    return "asyncio"


OPEN, SECRET = "rye.execute.tool.acme.open", "rye.execute.tool.acme.secret"
EVERYTHING = {
    "permissions": ["rye.*"],
    "capabilities": ["rye.*"],
    "ctx": {"capabilities": None},
    "item_id": "tool:acme/secret",
}
"""What somebody would pass who hopes that it is heeded."""


@frozen
class Try:
    """One way to reach for more.

    Attributes:
        nodes: The graph's.
        inputs: What the run is given.
        permissions: What its file grants.
        held: What its caller holds; None for the host.
        code: What the run fails with; None where it ends well, and has just not been heeded.
        prepare: Furnishes the host.
        script: What the model says.
        config: More of the graph's file.
    """

    nodes: dict[str, Any]
    inputs: dict[str, Any] = field(factory=dict)
    permissions: tuple[str, ...] = (OPEN,)
    held: tuple[str, ...] | None = None
    code: str | None = "tool_denied"
    prepare: Callable[["Asking"], None] | None = None
    script: tuple[Any, ...] = ()
    config: dict[str, Any] = field(factory=dict)


def _act(item: str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"action": {"item_id": item, "params": params or {}}, "next": "done"} | more


def _inner(host: Asking) -> None:
    """A graph that grants itself everything."""
    host.graph(
        {"reach": _act("tool:acme/secret"), "done": gives("reached")},
        name="acme/inner",
        permissions=("rye.execute.*",),
    )


def _directive(host: Asking) -> None:
    host.write("acme/x", permissions="<execute><tool>*</tool></execute>")


def _hook() -> dict[str, Any]:
    action = {"primary": "execute", "item_id": "tool:acme/secret"}
    return {"hooks": [{"id": "reaches", "event": "after_step", "action": action}]}


WHOLE = (OPEN, SECRET)
"""What a file grants whose caller holds less."""

FLOW = "rye.execute.tool.acme.flow"

TRIES: dict[str, Try] = {
    "its caller holds less than its file grants": Try(
        {"reach": _act("tool:acme/secret"), "done": gives()}, permissions=WHOLE, held=(FLOW, OPEN)
    ),
    "a wildcard of its file is no more than its caller's": Try(
        {"reach": _act("tool:acme/secret"), "done": gives()},
        permissions=("rye.execute.tool.*",),
        held=(FLOW, "rye.execute.tool.acme.open*"),
    ),
    "an input says what may be done": Try(
        {"reach": _act("tool:acme/secret"), "done": gives()},
        inputs=EVERYTHING,
        permissions=WHOLE,
        held=(FLOW, OPEN),
    ),
    "a parameter says what may be done": Try(
        {"reach": _act("tool:acme/open", EVERYTHING), "done": gives("${state.said}")}, code=None
    ),
    "a value of the state says what may be done": Try(
        {
            "first": {"type": "gate", "assign": EVERYTHING, "next": "reach"},
            "reach": _act("tool:acme/secret"),
            "done": gives(),
        },
        permissions=WHOLE,
        held=(FLOW, OPEN),
        config={"state": {"said": None} | dict.fromkeys(EVERYTHING)},
    ),
    "a foreach's member says what is called": Try(
        {
            "each": {
                "type": "foreach", "over": [EVERYTHING], "as": "item", "next": "done",
                "action": {"item_id": "tool:acme/open", "params": {"said": "${item}"}},
            },
            "done": gives(),
        },
        code=None,
    ),
    "a foreach calls what its caller may not": Try(
        {
            "each": {
                "type": "foreach", "over": [1, 2], "as": "item", "next": "done",
                "action": {"item_id": "tool:acme/secret"},
            },
            "done": gives(),
        },
        permissions=WHOLE,
        held=(FLOW, OPEN),
        code="tool_failed",
    ),
    "a graph in the graph grants itself more": Try(
        {"reach": _act("tool:acme/inner"), "done": gives()},
        permissions=("rye.execute.tool.acme.inner",),
        prepare=_inner,
        code="tool_failed",
    ),
    "a fork's directive grants itself more": Try(
        {
            "fork": {"action": {"item_id": "directive:acme/x", "thread": "fork"}, "next": "done"},
            "done": gives(),
        },
        permissions=("rye.execute.directive.acme.x",),
        prepare=_directive,
        script=(call("rye_execute", {"item_id": "tool:acme/secret"}), say("denied"), say("end")),
        code=None,
    ),
    "a fork's own function is the host's": Try(
        {
            "fork": {"action": {"item_id": "directive:acme/x", "thread": "fork"}, "next": "done"},
            "done": gives(),
        },
        permissions=("rye.execute.directive.acme.x",),
        prepare=_directive,
        script=(call("leak"), say("denied"), say("end")),
        code=None,
    ),
    "an agent calls a signed tool that the file doesn't grant": Try(
        {"ask": asks(), "done": gives()},
        config={"agents": {"writer": agent(tools=["tool:acme/secret"])}},
        script=(call("acme__secret"), say("never")),
    ),
    "an agent calls a signed tool that the caller doesn't hold": Try(
        {"ask": asks(), "done": gives()},
        permissions=WHOLE,
        held=(FLOW, OPEN),
        config={"agents": {"writer": agent(tools=["tool:acme/secret"])}},
        script=(call("acme__secret"), say("never")),
    ),
    "an agent calls a function that the file doesn't grant": Try(
        {"ask": asks(), "done": gives()},
        config={"agents": {"writer": agent(tools=["leak"])}},
        script=(call("leak"), say("never")),
    ),
    "an agent calls a function that the caller doesn't hold": Try(
        {"ask": asks(), "done": gives()},
        permissions=("rye.execute.tool.host.leak",),
        held=(FLOW,),
        config={"agents": {"writer": agent(tools=["leak"])}},
        script=(call("leak"), say("never")),
    ),
    "an agent calls what its node doesn't grant": Try(
        {"ask": asks(tools=[]), "done": gives()},
        permissions=WHOLE,
        config={"agents": {"writer": agent(tools=["tool:acme/secret"])}},
        script=(call("acme__secret"), say("never")),
    ),
    "a hook reaches for more": Try(
        {"first": {"type": "gate", "next": "done"}, "done": gives()},
        permissions=WHOLE,
        held=(FLOW, OPEN),
        config=_hook(),
        code=None,
    ),
}  # fmt: skip


def _stage(root: Path, *script: Any) -> tuple[Asking, Path]:
    """A host with a tool that anybody may call, and two things that leave a mark."""
    mark = root / "mark"

    @tool
    async def leak() -> str:
        """Leave a mark."""
        mark.write_text("leaked")
        return "leaked"

    host = Asking(root, *script, tools=[leak])
    host.workspace.python("acme/open", "def execute(params, project_path):\n    return params")
    host.workspace.python(
        "acme/secret",
        f"def execute(params, project_path):\n    open({str(mark)!r}, 'w').write('x')\n",
    )
    return host, mark


@pytest.mark.parametrize("name", TRIES)
async def test_nothing_reaches_what_is_not_granted(tmp_path: Path, name: str) -> None:
    one = TRIES[name]
    host, mark = _stage(tmp_path, *one.script)
    if one.prepare is not None:
        one.prepare(host)
    host.graph(one.nodes, permissions=one.permissions, **one.config)
    ctx = None if one.held is None else CallContext(capabilities=frozenset(one.held))
    done = await host.walk("tool:acme/flow", one.inputs, ctx=ctx)
    assert not mark.exists()
    code = None if done.failed is None else done.failed.code
    assert code == one.code, done.error


GRANTABLE = [one for one in TRIES if "says what" not in one and "node doesn't" not in one]
"""Those that name something that could be granted."""


@pytest.mark.parametrize("name", GRANTABLE)
async def test_what_is_granted_leaves_its_mark(tmp_path: Path, name: str) -> None:
    """The same tries, where file and caller grant it: so the table tries what can be done."""
    one = TRIES[name]
    host, mark = _stage(tmp_path, *one.script)
    if one.prepare is not None:
        one.prepare(host)
    host.graph(one.nodes, permissions=("rye.execute.*",), **one.config)
    await host.walk("tool:acme/flow", one.inputs)
    assert mark.exists()


async def test_what_a_file_calls_and_does_not_grant_is_refused_as_it_is_read(
    tmp_path: Path,
) -> None:
    host, _ = _stage(tmp_path)
    host.graph({"reach": _act("tool:acme/secret"), "done": gives()}, permissions=(OPEN,))
    with pytest.raises(GraphInvalid, match="No permission covers tool:acme/secret"):
        await host.walk("tool:acme/flow")


async def test_what_is_called_stands_in_the_file_and_is_no_expression(tmp_path: Path) -> None:
    host, _ = _stage(tmp_path)
    host.graph({"reach": _act("tool:${inputs.item_id}"), "done": gives()})
    with pytest.raises(GraphInvalid):
        await host.walk("tool:acme/flow", {"item_id": "acme/secret"})


async def test_a_run_needs_the_capability_of_its_graph(tmp_path: Path) -> None:
    host, _ = _stage(tmp_path)
    host.graph({"done": gives(1)})
    with pytest.raises(InputError, match=r"rye\.execute\.tool\.acme\.flow"):
        await host.walk("tool:acme/flow", ctx=CallContext(capabilities=frozenset({OPEN})))


async def test_a_single_node_is_run_within_the_same_bounds(tmp_path: Path) -> None:
    host, mark = _stage(tmp_path)
    host.graph({"reach": _act("tool:acme/secret"), "done": gives()}, permissions=WHOLE)
    async with host.open() as rye:
        done = await rye.graphs.step(
            "tool:acme/flow",
            "reach",
            state={"said": EVERYTHING},
            ctx=CallContext(capabilities=frozenset({FLOW, OPEN})),
        )
    assert not mark.exists()
    assert done.failed is not None
    assert done.failed.code == "tool_denied"


async def test_who_resumes_a_run_lends_it_no_more_than_they_hold(tmp_path: Path) -> None:
    host, mark = _stage(tmp_path)
    nodes = {
        "first": _act("tool:acme/open", next="reach"),
        "reach": _act("tool:acme/secret"),
        "done": gives(),
    }
    host.graph(nodes, permissions=WHOLE)
    async with host.open() as rye:
        done = await rye.graphs.run("tool:acme/flow")
        assert mark.exists()
        mark.unlink()
        weak = CallContext(capabilities=frozenset({FLOW, OPEN}))
        again = await rye.graphs.resume(done.run_id, at=1, state={"said": EVERYTHING}, ctx=weak)
    assert not mark.exists()
    assert again.failed is not None
    assert again.failed.code == "tool_denied"


async def test_what_a_run_may_do_stands_in_its_signed_file(tmp_path: Path) -> None:
    host, _ = _stage(tmp_path)
    host.graph({"done": gives(1)}, permissions=WHOLE)
    ctx = CallContext(capabilities=frozenset({FLOW, OPEN}))
    done = await host.walk("tool:acme/flow", EVERYTHING, ctx=ctx)
    (began,) = host.told(done.run_id, "run_started")
    assert began.payload["capabilities"] == [OPEN]
