"""Graphs as they are read: every node and edge kind, lines, and what YAML may do to them."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ryecore.agent.model import Agent, AgentNode, RetrySpec
from ryecore.chain.spec import ElementSpec, read_spec
from ryecore.convert.lines import line_numbers
from ryecore.errors import GraphInvalid, MetadataError
from ryecore.graph.model import (
    Action,
    ActionForeach,
    ActionVertex,
    AgentVertex,
    Edge,
    GateVertex,
    Graph,
    ReturnVertex,
    Tries,
)
from ryecore.graph.reading import examine_graph, read_graph
from ryecore.graph.validation.problems import node_lines
from ryecore.items.documents import parse_document
from ryecore.items.refs import ItemRef
from ryecore.llm.fallback_rules import Backoff
from ryecore.policy.conditions import AllOf, AnyOf, Comparison, Negation
from ryecore.policy.expressions import read_template
from tests.timing import at_most_cpu
from tests.unit.graph.written import PATH, examined, item_of, written

WHOLE = """
permissions: [rye.execute.tool.acme.*, rye.execute.directive.*]
env_requires: [ACME_HOME]
config_schema: {type: object, properties: {path: {type: string}}, required: [path]}
config:
  start: load
  max_steps: 7
  max_concurrency: 3
  on_error: continue
  state: {count: 0, rows: null, summaries: null}
  state_schema: {properties: {count: {type: integer}}}
  hooks:
    - {id: again, event: error, condition: {path: state.count, op: lt, value: 3},
       action: {control: retry}}
  agents:
    writer: {provider: anthropic, model: big, system_prompt: Write., retry: 2,
             fallback_chain: [{provider: openai, model: other}]}
  nodes:
    load:
      description: Reads it
      action: {item_id: "tool:acme/load", params: {path: "${inputs.path}", deep: [{n: 1}]}}
      assign: {rows: "${result.rows}", count: "${state.count || 1}"}
      retry: {max: 3, base_s: 0.5, cap_s: 4}
      timeout_s: 60
      cache_result: true
      env_requires: [ACME_KEY]
      on_error: report
      next:
        - {to: each, when: {path: result.rows, op: exists}}
        - {to: check, when: {any: [{path: inputs.path, value: x}, {not: {path: state.count}}]}}
        - {to: check, when: {all: []}}
        - to: done
    each:
      type: foreach
      over: "${state.rows}"
      as: row
      action: {item_type: directive, item_id: acme/sum, thread: fork, model: small,
               limits: {turns: 3}, params: {text: "${row.text}"}}
      collect: summaries
      parallel: true
      max_concurrency: 2
      retry: 2
      next: check
    check: {type: gate, assign: {at: "${state._now}"}, next: write}
    write:
      type: agent
      agent_ref: writer
      prompt_template: "About {{ run.outputs.at }}: {{ inputs.path }}, {{ run.outputs.summaries }}"
      system_prompt_append: Briefly.
      tools: []
      retry: {max: 4, base_s: 1, cap_s: 2}
      output_schema: {type: object}
      assign: {rows: "${result.rows}"}
      next: done
    report: {action: {item_id: "tool:acme/report"}}
    done: {type: return, output: {count: "${state.count}", rows: "${state.rows}"}}
"""


def graph_of(text: str) -> Graph:
    report = examined(text)
    assert (report.errors, report.warnings) == ((), ())
    assert report.graph is not None
    return report.graph


def test_what_a_graph_declares_is_read() -> None:
    graph = graph_of(written(WHOLE))

    assert (graph.ref, graph.path, graph.digest) == (ItemRef("tool", "acme/flow"), PATH, "ab" * 32)
    assert (graph.start, graph.max_steps, graph.max_concurrency) == ("load", 7, 3)
    assert graph.on_error == "continue"
    assert graph.state == {"count": 0, "rows": None, "summaries": None}
    assert graph.state_schema == {"properties": {"count": {"type": "integer"}}}
    assert graph.env_requires == ("ACME_HOME",)
    assert graph.permissions == ("rye.execute.tool.acme.*", "rye.execute.directive.*")
    assert graph.input_schema is not None
    assert (graph.version, graph.description) == ("1.0.0", "What it is for")
    assert list(graph.nodes) == ["load", "each", "check", "write", "report", "done"]


def test_an_action_is_read() -> None:
    node = graph_of(written(WHOLE)).nodes["load"]

    assert node == ActionVertex(
        id="load",
        line=node.line,
        description="Reads it",
        action=Action(
            ItemRef("tool", "acme/load"),
            read_template({"path": "${inputs.path}", "deep": [{"n": 1}]}),
        ),
        assign={
            "rows": read_template("${result.rows}"),
            "count": read_template("${state.count || 1}"),
        },
        tries=Tries(3, 0.5, 4.0),
        timeout_s=60.0,
        cache_result=True,
        env_requires=("ACME_KEY",),
        on_error="report",
        next=(
            Edge("each", Comparison("result.rows", "exists")),
            Edge(
                "check",
                AnyOf(
                    (
                        Comparison("inputs.path", "eq", "x"),
                        Negation(Comparison("state.count", "eq")),
                    )
                ),
            ),
            Edge("check", AllOf(())),
            Edge("done"),
        ),
    )


def test_a_foreach_is_read_and_a_kind_beside_the_id() -> None:
    node = graph_of(written(WHOLE)).nodes["each"]

    assert node == ActionForeach(
        id="each",
        line=node.line,
        over=read_template("${state.rows}"),
        as_="row",
        action=Action(
            ItemRef("directive", "acme/sum"),
            read_template({"text": "${row.text}"}),
            thread="fork",
            model="small",
            limits={"turns": 3},
        ),
        collect="summaries",
        parallel=True,
        max_concurrency=2,
        tries=Tries(2),
        next=(Edge("check"),),
    )


def test_gates_agents_and_returns_are_read() -> None:
    graph = graph_of(written(WHOLE))
    gate, write, done = (graph.nodes[name] for name in ("check", "write", "done"))

    assert gate == GateVertex(
        id="check",
        line=gate.line,
        assign={"at": read_template("${state._now}")},
        next=(Edge("write"),),
    )
    assert isinstance(write, AgentVertex)
    assert write.agent == Agent(
        name="writer",
        provider="anthropic",
        model="big",
        system_prompt="Write.",
        retry=RetrySpec(2),
        fallback_chain=[{"provider": "openai", "model": "other"}],
    )
    assert write.node == AgentNode(
        id="write",
        agent_ref="writer",
        prompt_template=write.node.prompt_template.source,
        system_prompt_append="Briefly.",
        tools=[],
        retry=RetrySpec(4, Backoff(1.0, 2.0)),
        output_schema={"type": "object"},
    )
    assert done == ReturnVertex(
        id="done",
        line=done.line,
        output=read_template({"count": "${state.count}", "rows": "${state.rows}"}),
    )


def test_what_is_left_out_has_its_default() -> None:
    graph = graph_of(written('config: {start: a, nodes: {a: {action: {item_id: "tool:x"}}}}'))

    node = graph.nodes["a"]
    assert node == ActionVertex(
        id="a", line=7, action=Action(ItemRef("tool", "x"), read_template({}))
    )
    assert (graph.max_steps, graph.max_concurrency, graph.on_error) == (100, 10, "fail")
    assert graph.input_schema is None
    assert not graph.uses_time


def test_a_hook_is_kept_within_the_graphs_permissions() -> None:
    (hook,) = graph_of(written(WHOLE)).hooks

    assert (hook.id, hook.event, hook.owner, hook.is_directives) == (
        "again",
        "error",
        "acme/flow",
        True,
    )


@pytest.mark.parametrize(
    "node",
    [
        "{type: return, output: '${state._now}'}",
        "{type: return, output: ['x ${state[\"_timestamp\"]}']}",
        "{type: gate, next: [{to: a, when: {not: {path: state._timestamp, op: gt, value: 3}}}]}",
        "{type: agent, agent_ref: w, prompt_template: '{{ run.outputs._now }}'}",
        "{type: agent, agent_ref: w, prompt_template: '{{ ctx.state._now | default(1) }}'}",
    ],
)
def test_a_graph_that_asks_for_the_time_is_known(node: str) -> None:
    report = examined(
        written(
            "config:\n  start: a\n  agents: {w: {provider: p, model: m}}\n"
            f"  nodes:\n    a: {node}\n"
        )
    )

    assert report.errors == ()
    assert report.graph is not None
    assert report.graph.uses_time


def test_reading_raises_what_examining_tells() -> None:
    item = item_of(written("config: {start: b, nodes: {a: {type: return}}}"))
    spec = read_spec(parse_document(item.content, PATH), PATH)

    with pytest.raises(GraphInvalid) as raised:
        read_graph(item, spec)

    assert raised.value.problems == examine_graph(item, spec).errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("config: [", "line 2: broken YAML"),
        ("config: {ref: tool:acme/x}", "Within braces, YAML wants quotes around a text that holds"),
        ("config: " + "[" * 100_000, "nested too deeply"),
        ("a: &a [*a]", "stands inside itself"),
        (
            "a: &a [x]\n"
            + "".join(
                f"{chr(98 + n)}: &{chr(98 + n)} [{f'*{chr(97 + n)}, ' * 9}]\n" for n in range(9)
            ),
            "its aliases stand for too many nodes",
        ),
    ],
)
def test_yaml_out_of_bounds_is_refused(text: str, message: str) -> None:
    with pytest.raises(MetadataError, match=message):
        examine_graph(item_of(text), ElementSpec())


def test_aliases_and_merged_keys_are_read_and_their_problems_have_lines() -> None:
    report = examined(
        written("""
        config:
          start: a
          nodes:
            a: &plain
              action: &act {item_id: "tool:x", params: {x: "${state.y}"}}
              next: b
            b:
              <<: *plain
              next: c
            c: {action: *act}
        """)
    )

    assert [(one.line, one.key) for one in report.errors] == [
        (11, "config.nodes.a.action.params.x"),
        (13, "config.nodes.b.action.params.x"),
        (16, "config.nodes.c.action.params.x"),
    ]


def test_no_problem_takes_long_to_be_found_in_a_large_graph() -> None:
    count = 1000
    nodes = "".join(
        f"    n{number}:\n"
        f'      action: {{item_id: "tool:x", params: {{path: "${{inputs.path}}", n: {number}}}}}\n'
        f'      assign: {{k{number}: "${{result.rows}}"}}\n'
        f"      next:\n        - {{to: n{number + 1}, when: {{path: result.rows, op: exists}}}}\n"
        "        - {to: end}\n"
        for number in range(count)
    )
    ends = f"    n{count}: {{type: return}}\n    end: {{type: return}}\n"
    text = written(f"config:\n  start: n0\n  nodes:\n{nodes}{ends}")
    item, spec = item_of(text), read_spec(parse_document(text.encode(), PATH), PATH)

    with at_most_cpu(5):  # several times what it takes, for a machine under load
        graph = read_graph(item, spec)

    assert [graph.nodes[f"n{number}"].line for number in range(3)] == [10, 16, 22]


def test_a_name_that_stands_elsewhere_too_is_found_where_the_node_is() -> None:
    text = "config:\n  state:\n    x: 1\n  nodes: {x: {type: return}}\n"

    assert node_lines(text, ["x"]) == {"x": 4}
    assert node_lines(text.replace("nodes: {x:", "nodes:\n    x: {x:"), ["x"]) == {"x": 5}


@settings(deadline=None)
@given(
    st.lists(st.from_regex(r"[a-z][a-z0-9 :#'-]{0,5}", fullmatch=True), unique=True, max_size=5),
    st.data(),
)
def test_nodes_are_found_on_the_lines_that_the_parser_says(
    names: list[str], data: st.DataObject
) -> None:
    lines = ["config:", "  state:", "    x: 1", "  nodes:"]
    for name in names:
        key = data.draw(st.sampled_from([f'"{name}"', "'" + name.replace("'", "''") + "'"]))
        lines += data.draw(st.sampled_from([[], ["    # a remark", ""]]))
        lines += data.draw(
            st.sampled_from(
                [
                    [f"    {key}:", "      description: |", "        x:", "        y:"],
                    [f"    {key}: {{type: return}}"],
                    [f"    {key}  :", "      type: gate"],
                ]
            )
        )
    text = "\n".join(lines)

    found = node_lines(text, names)

    expected = line_numbers(text)
    assert found == {name: expected["config", "nodes", name] for name in names}


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(["", "x", "${state.x}", "${", "tool:x", "load", "state.count", ".", "{{", 1.5]),
    st.lists(st.sampled_from(["x", 1, None]), max_size=2),
    st.dictionaries(st.sampled_from(["type", "to", "max", "x"]), st.integers(), max_size=2),
)


@settings(deadline=None)
@given(st.data())
def test_whatever_stands_in_a_graph_is_read_or_told(data: st.DataObject) -> None:
    document = parse_document(written(WHOLE).encode(), PATH)
    for _ in range(data.draw(st.integers(1, 3))):
        inside: Any = document
        while True:
            keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            key = data.draw(st.sampled_from(keys))
            is_leaf = not isinstance(inside[key], dict | list) or not inside[key]
            if is_leaf or data.draw(st.integers(0, 3)) == 0:
                break
            inside = inside[key]
        inside[key] = data.draw(ODD)
    try:
        report = examined(json.dumps(document))
    except MetadataError:
        return  # it is no tool at all

    assert (report.graph is None) == bool(report.errors)
    assert all(one.line == 1 for one in (*report.errors, *report.warnings))
