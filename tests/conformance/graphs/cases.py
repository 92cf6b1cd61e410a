"""Graphs, and what comes of each. `run` in test_graphs.py furnishes the tools that they call."""

from collections.abc import Mapping
from typing import Any

from attrs import Factory, frozen

__all__ = ["CASES", "Case"]

ALL = ("rye.execute.tool.acme.*", "rye.execute.directive.acme.*")


@frozen(kw_only=True)
class Case:
    """A graph and what is expected of it.

    Attributes:
        name: What it shows.
        nodes: Its nodes; it begins with the first one.
        output: What it gives, where it ends well.
        status: How it ends.
        error: What its error holds, where it doesn't.
        node: The node that failed.
        steps: How many nodes are run.
        suppressed: How many errors are passed over.
        inputs: What it is given; `place` is a folder of this very run.
        config: The rest of its `config`.
        declared: Arguments of `tests.graphs.graph`.
    """

    name: str
    nodes: Mapping[str, Any]
    output: object = None
    status: str = "completed"
    error: str = ""
    node: str | None = None
    steps: int | None = None
    suppressed: int = 0
    inputs: Mapping[str, Any] = Factory(dict)
    config: Mapping[str, Any] = Factory(dict)
    declared: Mapping[str, Any] = Factory(lambda: {"permissions": ALL})


def call(tool: str, params: object = None, **more: object) -> dict[str, Any]:
    """A node that calls a tool."""
    return {"action": action(tool, params), **more}


def action(tool: str, params: object = None) -> dict[str, Any]:
    named: dict[str, Any] = {"item_id": f"tool:acme/{tool}"}
    return named if params is None else {**named, "params": params}


def give(output: object) -> dict[str, Any]:
    """A node that ends the graph."""
    return {"type": "return", "output": output}


def gate(next_: object, **more: object) -> dict[str, Any]:
    return {"type": "gate", "next": next_, **more}


def when(to: str, path: str, op: str, value: object = None) -> dict[str, Any]:
    return {"to": to, "when": {"path": path, "op": op, "value": value}}


def each(over: str, params: object, tool: str = "echo", **more: object) -> dict[str, Any]:
    return {"type": "foreach", "over": over, "action": action(tool, params), **more}


_IS_3 = {"path": "inputs.n", "value": 3}  # `eq` is meant where no operator stands
_IS_9 = {"path": "inputs.n", "op": "eq", "value": 9}

# Each condition twice: once where it holds, once where it doesn't.
_CONDITIONS: list[tuple[dict[str, Any], bool]] = [
    ({"path": "inputs.n", "op": op, "value": value}, is_so)
    for op, value, is_so in [
        ("eq", 3, True), ("eq", 4, False), ("ne", 4, True), ("ne", 3, False), ("gt", 2, True),
        ("gt", 3, False), ("gte", 3, True), ("gte", 4, False), ("lt", 4, True), ("lt", 3, False),
        ("lte", 3, True), ("lte", 2, False), ("in", [1, 3], True), ("in", [1], False),
    ]
] + [
    ({"path": "inputs.text", "op": "contains", "value": "ide"}, True),
    ({"path": "inputs.text", "op": "contains", "value": "z"}, False),
    ({"path": "inputs.text", "op": "regex", "value": "^t.de"}, True),
    ({"path": "inputs.text", "op": "regex", "value": "^x"}, False),
    ({"path": "inputs.text", "op": "exists"}, True),
    ({"path": "inputs.nothing", "op": "exists"}, False),
    ({"any": [_IS_9, _IS_3]}, True), ({"any": [_IS_9, _IS_9]}, False),
    ({"all": [_IS_3, _IS_3]}, True), ({"all": [_IS_9, _IS_3]}, False),
    ({"not": _IS_9}, True), ({"not": _IS_3}, False),
]  # fmt: skip


def _conditions() -> dict[str, Any]:
    nodes: dict[str, Any] = {}
    for number, (condition, _) in enumerate(_CONDITIONS):
        yes, no, next_ = f"yes{number}", f"no{number}", f"ask{number + 1}"
        nodes[f"ask{number}"] = gate([{"to": yes, "when": condition}, {"to": no}])
        nodes[yes] = gate(next_, assign={"seen": "${state.seen}y"})
        nodes[no] = gate(next_, assign={"seen": "${state.seen}n"})
    nodes[f"ask{len(_CONDITIONS)}"] = give("${state.seen}")
    return nodes


_LOOP = {
    "add": call("add", {"a": "${state.n}", "b": 1}, assign={"n": "${result.sum}"}, next="ask"),
    "ask": gate([when("add", "state.n", "lt", 3), {"to": "done"}]),
    "done": give("${state.n}"),
}
_EXPRESSIONS = {
    "whole": "${inputs.list}",
    "text": "n is ${inputs.n}, list is ${inputs.list}, none is ${inputs.nothing}.",
    "choice": '${inputs.nothing || "else"}',
    "chosen_list": "${inputs.nothing || []}",
    "last": "${inputs.list[-1]}",
    "dotted": "${inputs.list.0}",
    "key": '${inputs.map["a key"]}',
    "length": "${inputs.list | length}",
    "json": "${inputs.map | json}",
    "upper": "${inputs.text | upper}",
    "literal": "$${inputs.n}",
    "opaque": "${inputs.braces}",
    "nested": {"deep": ["${inputs.n}", True, None]},
}
_OF_EXPRESSIONS = {
    "n": 3, "list": [1, "two"], "map": {"a key": 1}, "text": "tide", "braces": "${inputs.n}",
    "nothing": None,
}  # fmt: skip

CASES: tuple[Case, ...] = (
    Case(
        name="an action, what it assigns, and a return",
        nodes={
            "add": call("add", {"a": "${inputs.n}", "b": 1}, assign={"n": "${result.sum}"},
                        next="done"),
            "done": give({"n": "${state.n}", "began": "${inputs.n}"}),
        },
        inputs={"n": 41}, config={"state": {"n": 0}}, output={"n": 42, "began": 41}, steps=2,
    ),
    Case(name="a return gives null", nodes={"done": give(None)}, steps=1),
    Case(name="a return gives what is no mapping", nodes={"done": give([1, "${inputs.n}"])},
         inputs={"n": 2}, output=[1, 2]),
    Case(name="a node without an edge ends the graph", nodes={"add": call("add", {"a": 1, "b": 1})},
         steps=1),
    Case(
        name="where no edge holds, the graph ends",
        nodes={"ask": gate([when("done", "inputs.n", "eq", 1)]), "done": give("never")},
        inputs={"n": 2}, steps=1,
    ),
    Case(
        name="the first edge that holds is taken",
        nodes={
            "ask": gate([when("one", "inputs.n", "gt", 1), when("two", "inputs.n", "gt", 2)]),
            "one": give(1), "two": give(2),
        },
        inputs={"n": 3}, output=1,
    ),
    Case(name="every condition", nodes=_conditions(), inputs={"n": 3, "text": "tide"},
         config={"state": {"seen": ""}, "max_steps": 500},
         output="".join("y" if is_so else "n" for _, is_so in _CONDITIONS)),
    Case(
        name="an edge on what an action gave",
        nodes={
            "add": call("add", {"a": 1, "b": 1},
                        next=[when("two", "result.sum", "eq", 2), {"to": "other"}]),
            "two": give("two"), "other": give("other"),
        },
        output="two",
    ),
    Case(name="a loop", nodes=_LOOP, config={"state": {"n": 0}}, output=3, steps=7),
    Case(name="a loop that takes too many steps", nodes=_LOOP,
         config={"state": {"n": 0}, "max_steps": 4}, status="error",
         error="max_steps (4) is used up"),
    Case(name="expressions", nodes={"done": give(_EXPRESSIONS)}, inputs=_OF_EXPRESSIONS, output={
        "whole": [1, "two"], "text": 'n is 3, list is [1, "two"], none is .', "choice": "else",
        "chosen_list": [], "last": "two", "dotted": 1, "key": 1, "length": 2,
        "json": '{"a key": 1}', "upper": "TIDE", "literal": "${inputs.n}", "opaque": "${inputs.n}",
        "nested": {"deep": [3, True, None]},
    }),
    Case(
        name="a parameter that is none is left out",
        nodes={"echo": call("echo", {"a": "${inputs.nothing}", "b": 1}, assign={"got": "${result}"},
                            next="done"),
               "done": give("${state.got}")},
        inputs={"nothing": None}, config={"state": {"got": None}}, output={"b": 1},
    ),
    Case(
        name="an input's default",
        nodes={"done": give("${inputs.n}")},
        declared={"inputs": {"n": {"type": "integer", "default": 7}}}, output=7,
    ),
    Case(
        name="an input that doesn't fit", nodes={"done": give("${inputs.n}")},
        declared={"inputs": {"n": {"type": "integer"}}}, inputs={"n": "x"}, status="refused",
        error="parameters don't fit",
    ),
    Case(
        name="a foreach in order",
        nodes={"each": each("${inputs.list}", {"x": "${item}"}, collect="all", next="done"),
               "done": give("${state.all}")},
        inputs={"list": [3, 1, 2]}, config={"state": {"all": []}},
        output=[{"x": 3}, {"x": 1}, {"x": 2}],
    ),
    Case(
        name="a foreach at once keeps the order",
        nodes={"each": each("${inputs.list}", {"x": "${row}", "k": "${inputs.k}"}, **{"as": "row"},
                            parallel=True, max_concurrency=4, collect="all",
                            assign={"count": "${result.count}"}, next="done"),
               "done": give({"all": "${state.all}", "count": "${state.count}"})},
        inputs={"list": [1, 2, 3, 4, 5, 6], "k": "k"}, config={"state": {"all": [], "count": 0}},
        output={"all": [{"x": x, "k": "k"} for x in range(1, 7)], "count": 6},
    ),
    Case(
        name="a foreach over nothing",
        nodes={"each": each("${inputs.list}", {"x": "${item}"}, collect="all", next="done"),
               "done": give("${state.all}")},
        inputs={"list": []}, config={"state": {"all": None}}, output=[],
    ),
    Case(
        name="a foreach over what is no list",
        nodes={"each": each("${inputs.list}", {"x": "${item}"})},
        inputs={"list": "text"}, status="error", error="needs a list in 'over'", node="each",
    ),
    Case(
        name="a foreach whose member fails fails",
        nodes={"each": each("${inputs.list}", {"n": "${item}"}, tool="positive")},
        inputs={"list": [1, -1, 2]}, status="error", error="Member 1 of 'each'", node="each",
    ),
    Case(
        name="a foreach that passes over what fails",
        nodes={"each": each("${inputs.list}", {"n": "${item}"}, tool="positive", collect="all",
                            assign={"failed": "${result.failed}"}, next="done"),
               "done": give({"all": "${state.all}", "failed": "${state.failed}"})},
        inputs={"list": [1, -1, 2]},
        config={"state": {"all": [], "failed": 0}, "on_error": "continue"},
        status="completed_with_errors", suppressed=1,
        output={"all": [{"n": 1}, None, {"n": 2}], "failed": 1},
    ),
    Case(name="a failed node ends the run",
         nodes={"bad": call("bad", next="done"), "done": give(1)},
         status="error", error="bad: oh no", node="bad", steps=1),
    Case(
        name="a failed node's own edge",
        nodes={
            "bad": call("bad", on_error="mend", assign={"n": 1}, next="done"),
            "mend": gate("done"),
            "done": give({"node": "${state._last_error.node}", "n": "${state.n}"}),
        },
        config={"state": {"n": 0}}, output={"node": "bad", "n": 0}, steps=3,
    ),
    Case(
        name="a failed node that is passed over",
        nodes={"bad": call("bad", assign={"n": 1}, next="done"), "done": give("${state.n}")},
        config={"state": {"n": 0}, "on_error": "continue"},
        status="completed_with_errors", suppressed=1, output=0,
    ),
    Case(
        name="a try that goes well the second time",
        nodes={"flaky": call("flaky", {"place": "${inputs.place}", "fails": 1},
                             retry={"max": 3, "base_s": 0.01}, next="done"),
               "done": give("well")},
        output="well", steps=2,
    ),
    Case(
        name="tries that are used up",
        nodes={"flaky": call("flaky", {"place": "${inputs.place}", "fails": 9},
                             retry={"max": 2, "base_s": 0.01})},
        status="error", error="try 2 failed", node="flaky",
    ),
    Case(name="a node's time", nodes={"slow": call("sleep", {"s": 30}, timeout_s=0.3)},
         status="error", error="'slow' took longer than its 0.3 s: ", node="slow"),
    Case(
        name="a hook that passes over an error",
        nodes={"bad": call("bad", next="done"), "done": give("on")},
        config={"hooks": [{"id": "on", "event": "error", "action": {"control": "continue"}}]},
        status="completed_with_errors", output="on", suppressed=1,
    ),
    Case(name="a tool that is not there", nodes={"gone": call("gone")}, status="error",
         error="acme/gone", node="gone"),
    Case(
        name="a tool that nobody signed ends the run whatever the policy says",
        nodes={"odd": call("unsigned", next="done"), "done": give("never")},
        config={"on_error": "continue"}, status="error", error="unsigned", node="odd",
    ),
    Case(
        name="a variable that is missing", nodes={"done": give(1)},
        declared={"env_requires": ("ACME_HOME",)}, status="refused", error="requires ACME_HOME",
    ),
    Case(
        name="a directive hands out its directions",
        nodes={"read": {"action": {"item_type": "directive", "item_id": "acme/talk"},
                        "assign": {"said": "${result.your_directions}"}, "next": "done"},
               "done": give("${state.said}")},
        config={"state": {"said": ""}}, output="Talk.",
    ),
    Case(
        name="a graph calls a graph",
        nodes={"call": call("inner", {"n": "${inputs.n}"}, assign={"n": "${result.output}"},
                            next="done"),
               "done": give("${state.n}")},
        inputs={"n": 3}, config={"state": {"n": 0}}, output={"doubled": 6},
    ),
    Case(
        name="an agent's answer",
        nodes={"write": {"type": "agent", "agent_ref": "writer", "assign": {"text": "${result}"},
                         "prompt_template": "Write of {{ inputs.topic }}.", "next": "done"},
               "done": give("${state.text}")},
        inputs={"topic": "tides"},
        config={"state": {"text": ""},
                "agents": {"writer": {"provider": "scripted", "model": "m"}}},
        output="I was told: Write of tides.",
    ),
    Case(
        name="an agent whose provider nobody has",
        nodes={"write": {"type": "agent", "agent_ref": "writer", "prompt_template": "Write."}},
        config={"agents": {"writer": {"provider": "nobody", "model": "m"}}},
        status="error", error="nobody", node="write",
    ),
)  # fmt: skip
