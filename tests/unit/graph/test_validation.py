"""Every problem that a graph can have: what is said, and of which line.

The cases are in `problems/`: above a line stands what is said of it.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from ryecore.chain.spec import read_spec
from ryecore.errors import GraphInvalid
from ryecore.graph.reading import read_graph
from ryecore.items.documents import parse_document
from tests.unit.graph.written import HEAD, PATH, Case, cases, examined, item_of, written

ERRORS = cases("top", "nodes", "actions", "agents", "edges", "expressions", "state")
WARNINGS = cases("warnings")


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS)
def test_each_problem_is_said_with_its_line(case: Case) -> None:
    report = examined(case.text)

    assert [(one.line, one.message) for one in report.errors] == case.expected
    assert report.graph is None
    assert report.errors[0].path == PATH


@pytest.mark.parametrize("case", WARNINGS.values(), ids=WARNINGS)
def test_what_only_looks_wrong_is_a_warning(case: Case) -> None:
    report = examined(case.text)

    assert report.errors == ()
    assert report.graph is not None
    assert [(one.line, one.message) for one in report.warnings] == case.expected


def test_no_problem_hides_another() -> None:
    report = examined(
        written("""
        config:
          start: lod
          max_steps: none
          nodes:
            load:
              action: {item_id: tool:acme/x, parms: {}}
              retry: 0
              on_error: lost
              assign: {x: "${result.", y: "${resut}"}
              next: [{to: each}, {too: each}]
            each: {type: foreach, as: inputs}
            done: {type: return, output: ["${", "${x |}"]}
        """)
    )

    assert [(one.node, one.key.removeprefix("config.")) for one in report.errors] == [
        (None, "start"),
        (None, "max_steps"),
        ("load", "nodes.load.action.parms"),
        ("load", "nodes.load.retry"),
        ("load", "nodes.load.on_error"),
        ("load", "nodes.load.assign.x"),
        ("load", "nodes.load.assign.y"),
        ("load", "nodes.load.next[1]"),
        ("load", "nodes.load.next[1].too"),
        ("each", "nodes.each"),
        ("each", "nodes.each"),
        ("each", "nodes.each.as"),
        ("done", "nodes.done.output[0]"),
        ("done", "nodes.done.output[1]"),
    ]


LONG = "x" * 5000
SOME: dict[str, Any] = {
    "start": "a",
    "state_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "nodes": {
        "a": {
            "action": {"item_id": "tool:acme/x", "params": {"one": "${inputs.one}"}},
            "assign": {"n": "${result.n | length}"},
            "next": [{"to": "b", "when": {"path": "state.n", "op": "eq", "value": 1}}],
        },
        "b": {"type": "return", "output": "${state.n}"},
    },
}
LONG_KEY = "x" * 1000
"""YAML takes no longer one."""


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a document, below its root."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in parts:
        yield (*place, key)
        if isinstance(part, dict | list):
            yield from places(part, (*place, key))


@pytest.mark.parametrize(
    "value",
    [
        LONG,
        f"${{{LONG}}}",
        f"${{result.{LONG}}}",
        f"${{inputs.a | {LONG}}}",
        [LONG],
        {LONG_KEY: LONG},
    ],
    ids=["text", "path", "part", "filter", "list", "mapping"],
)
def test_no_problem_quotes_a_long_value_whole(value: object) -> None:
    found = 0
    for *above, last in places(SOME):
        document = deepcopy(SOME)
        at: Any = document
        for part in above:
            at = at[part]
        at[last] = value
        report = examined(f"{HEAD}permissions: [rye.execute.*]\nconfig: {json.dumps(document)}")
        for one in (*report.errors, *report.warnings):
            assert one.message.count("x") < 250
            found += 1
    assert found > 10


def test_no_problem_quotes_a_long_key_whole() -> None:
    document = deepcopy(SOME)
    node = document["nodes"]["a"]
    node[LONG_KEY] = node["action"][LONG_KEY] = 1
    report = examined(f"{HEAD}permissions: [rye.execute.*]\nconfig: {json.dumps(document)}")
    assert len(report.errors) == 2
    assert all("x" * 110 not in one.message for one in report.errors)


def test_the_error_lists_every_problem_as_people_and_programs_read_it() -> None:
    item = item_of(written("config: {start: b, nodes: {a: {type: retrun}}}"))

    with pytest.raises(GraphInvalid) as raised:
        read_graph(item, read_spec(parse_document(item.content, PATH), PATH))

    assert str(raised.value) == (
        "tool:acme/flow has 2 problems:\n"
        f"  {PATH}, line 7, config.start: There is no node 'b'. Known: a.\n"
        f"  {PATH}, line 7, config.nodes.a.type: type must be one of action, gate, foreach, "
        "agent, return, not 'retrun'. Did you mean 'return'?\n"
        "Mend the file and sign it again."
    )
    assert raised.value.to_dict()["problems"] == [
        {
            "message": "There is no node 'b'. Known: a.",
            "path": str(PATH),
            "line": 7,
            "node": None,
            "key": "config.start",
        },
        {
            "message": raised.value.problems[1].message,
            "path": str(PATH),
            "line": 7,
            "node": "a",
            "key": "config.nodes.a.type",
        },
    ]


@pytest.mark.parametrize(
    "body",
    [
        "config: {start: a, nodes: {a: {type: gate, next: [{to: a, when: "
        "{path: state._now, op: exists}}]}}}",
        "config: {start: a, nodes: {a: {action: {item_id: tool:x}, on_error: b, next: a}, "
        "b: {type: return}}}",
        "config: {start: a, timeout: 30, nodes: {a: {type: return}}}",
        "tags: [x]\nauthor: me\nconfig: {start: a, nodes: {a: {type: return}}}",
        "config: {start: a, state: {x: 1}, nodes: {a: {type: return, output: '${state}'}}}",
        "permissions: [rye.*]\nconfig: {start: a, nodes: {a: {type: return}}}",
        "permissions: []\nconfig: {start: a, nodes: {a: {type: return}}}",
        "permissions: [rye.execute.directive.x, rye.execute.tool.y]\n"
        "config: {start: a, nodes: {a: {action: {item_id: directive:x}}}}",
    ],
)
def test_what_is_right_is_not_warned_of(body: str) -> None:
    report = examined(written(body))

    assert (report.errors, report.warnings) == ((), ())


def test_a_graph_is_yaml() -> None:
    report = examined('{"permissions": [], "config": {}}', PATH.with_suffix(".json"))

    assert [str(one) for one in report.errors] == [
        f"{PATH.with_suffix('.json')}: A graph is a YAML file."
    ]


def test_a_file_that_is_wrong_throughout_is_guessed_at_where_it_begins() -> None:
    """To compare each of 10,000 wrong names with all others took two minutes."""
    nodes = "\n".join(f"    node{at}: {{type: gate, next: noda{at}}}" for at in range(300))

    report = examined(written(f"config:\n  start: node0\n  nodes:\n{nodes}"))

    said = [one.message for one in report.errors if "There is no node" in one.message]
    assert len(said) == 300
    assert said[0] == "There is no node 'noda0'. Did you mean 'node0'?"
    assert not any("Did you mean" in one for one in said[100:])
    assert said[-1].startswith("There is no node 'noda299'. Known: node0, ")
