"""The loader of graphs, verified as tools, and the reader, which reports all their problems.

Source: docs/design/graphs.md#the-walk.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import evolve

from ryecore.caches import BoundedDict
from ryecore.chain.model import ValidChain
from ryecore.chain.spec import ElementSpec
from ryecore.convert.lines import key_path, line_numbers, nearest
from ryecore.display.text import Rendered, StyledText, status_mark
from ryecore.errors import InputError
from ryecore.errors.items import GraphInvalid, GraphProblem
from ryecore.frozen import frozen
from ryecore.graph.model import GRAPH_RUNTIME, Graph
from ryecore.graph.validation.calls import check_calls, check_programs, tools_with_expressions
from ryecore.graph.validation.document import DocumentReader
from ryecore.graph.validation.problems import GraphFinding, Problems, node_lines
from ryecore.items.documents import parse_document
from ryecore.items.refs import ItemRef
from ryecore.items.verification import VerifiedItem
from ryecore.policy import CallContext
from ryecore.runs.ports import Dispatcher
from ryecore.runs.programs import ChainLookup, tool_schema

__all__ = [
    "GraphLoader",
    "GraphReport",
    "LoadedGraph",
    "examine_graph",
    "located",
    "read_graph",
    "refuse_spliced",
    "with_calls",
]

_YAML: tuple[str, ...] = (".yaml", ".yml")


@frozen(repr=False)
class GraphReport(Rendered):
    """The report on a graph's file.

    Attributes:
        graph: The graph; None where its file has errors.
        errors: The problems that keep it from running, in the order of the file.
        warnings: The problems that don't keep it from running.
    """

    graph: Graph | None
    errors: tuple[GraphProblem, ...] = ()
    warnings: tuple[GraphProblem, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether the file has no errors."""
        return not self.errors

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-ready object."""
        return {
            "is_valid": self.is_valid,
            "errors": [one.to_dict() for one in self.errors],
            "warnings": [one.to_dict() for one in self.warnings],
        }

    def render(self) -> StyledText:
        """Render the problems for a terminal or a notebook, each with its file and line."""
        text = StyledText()
        for status, problems in (("problem", self.errors), ("warning", self.warnings)):
            mark = status_mark(status)
            for one in problems:
                line = f":{one.line}" if one.line else ""
                text.line(mark, f"{one.path}{line}", (f"  {one.key}", "dim"))
                text.line("  ", (one.message, mark[1]))
        return text

    def __repr__(self) -> str:
        counts = f"{len(self.errors)} errors, {len(self.warnings)} warnings"
        return f"GraphReport({counts})"


def read_graph(item: VerifiedItem, spec: ElementSpec) -> Graph:
    """Read a graph; raise GraphInvalid with all errors, each with its line."""
    report = examine_graph(item, spec)
    if report.graph is None:
        raise GraphInvalid.of(item.source.ref, report.errors, report.warnings)
    return report.graph


def examine_graph(item: VerifiedItem, spec: ElementSpec) -> GraphReport:
    """Read a graph, and report its errors and warnings. Broken YAML is a MetadataError."""
    path = item.source.path
    if path.suffix not in _YAML:
        return GraphReport(None, (GraphProblem("A graph is a YAML file.", path),))
    text = item.content.decode("utf-8", "replace")
    document = parse_document(item.content, path)
    nodes = spec.config.get("nodes")
    names = [str(name) for name in nodes] if isinstance(nodes, dict) else []
    problems = Problems()
    graph = DocumentReader(document, node_lines(text, names), problems).read(
        Graph(
            ref=item.source.ref,
            digest=item.integrity if item.is_verified else hashlib.sha256(item.content).hexdigest(),
            path=path,
            start="",
            nodes={},
            version=spec.version,
            description=spec.description,
        )
    )
    return GraphReport(
        graph, located(problems.errors, text, path), located(problems.warnings, text, path)
    )


def located(found: Sequence[GraphFinding], text: str, path: Path) -> tuple[GraphProblem, ...]:
    """Return problems with their lines, in the order of the file, without duplicates."""
    if not found:
        return ()
    lines = line_numbers(text)
    order = {place: at for at, place in enumerate(lines)}
    told = {
        GraphProblem(
            message=one.message,
            path=path,
            line=lines.get(known, 1) if lines else None,
            node=str(one.place[2]) if _is_in_node(one) else None,
            key=key_path(one.place),
        ): order.get(known, -1)
        for one in found
        for known in (nearest(one.place, lines),)
    }
    return tuple(sorted(told, key=told.__getitem__))


def _is_in_node(found: GraphFinding) -> bool:
    return found.place[:2] == ("config", "nodes") and len(found.place) > 2


def with_calls(
    report: GraphReport, text: str, lookup: Callable[[ItemRef], Mapping[str, object] | None]
) -> GraphReport:
    """Add the problems between a graph and the items that it calls to a report.

    `lookup` finds an item's schema; it raises RyeError where the item can't be used. The report
    still has its graph: called items may be repaired without changing it.
    """
    if report.graph is None:
        return report
    found, path = check_calls(report.graph, lookup), report.graph.path
    return evolve(
        report,
        errors=_sorted((*report.errors, *located(found.errors, text, path))),
        warnings=_sorted((*report.warnings, *located(found.warnings, text, path))),
    )


def _sorted(problems: tuple[GraphProblem, ...]) -> tuple[GraphProblem, ...]:
    return tuple(sorted(problems, key=lambda one: one.line or 0))


_MAX_REMEMBERED: Final = 256


@frozen
class LoadedGraph:
    """A graph and its verified chain: the graph, its runtime, the primitive."""

    graph: Graph
    chain: ValidChain


async def refuse_spliced(graph: Graph, item: VerifiedItem, chain: ChainLookup) -> None:
    """Raise GraphInvalid, with each place, where a graph puts a value into a program.

    `chain` verifies the tools that it calls, which may change without the graph.
    """
    schemas = {ref: await tool_schema(ref, chain) for ref in tools_with_expressions(graph)}
    found = check_programs(graph, schemas).errors
    if found:
        text = item.content.decode("utf-8", "replace")
        raise GraphInvalid.of(graph.ref, located(found, text, item.source.path))


class GraphLoader:
    """The loader of graphs; the dispatcher verifies each chain before its use."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._read: BoundedDict[tuple[ItemRef, str], Graph] = BoundedDict(_MAX_REMEMBERED)

    async def __call__(self, ref: ItemRef, ctx: CallContext) -> LoadedGraph:
        """Load a graph, if it can be verified, has no errors, and ryecore itself runs it."""
        chain, item = await self._found(ref, ctx)
        key = (ref, hashlib.sha256(item.content).hexdigest())
        graph = self._read.get(key)
        if graph is None:
            graph = self._read[key] = read_graph(item, chain.head.spec)
        await refuse_spliced(graph, item, self._dispatcher.chain)
        return LoadedGraph(graph, chain)

    async def examine(self, ref: ItemRef, ctx: CallContext) -> tuple[GraphReport, str]:
        """Return the report of errors and warnings of a graph's file, and the file's text."""
        chain, item = await self._found(ref, ctx)
        return examine_graph(item, chain.head.spec), item.content.decode("utf-8", "replace")

    async def _found(self, ref: ItemRef, ctx: CallContext) -> tuple[ValidChain, VerifiedItem]:
        chain = await self._dispatcher.chain(ref, ctx=ctx)
        head = chain.head
        if head.item is None or head.spec.executor_id != GRAPH_RUNTIME:
            raise InputError(
                f"{ref} is not a graph: its executor is {head.spec.executor_id}.",
                next_step=f"A graph has executor_id: {GRAPH_RUNTIME}",
            )
        if not chain.is_own_process:
            space = chain.elements[1].space
            raise InputError(
                f"{ref} is run by a runtime of the {space} space, which replaces ryecore's own.",
                next_step=f"Run it with that: rye execute {ref}",
            )
        return chain, head.item
