"""RunView: what is told of one run, while it goes on and afterwards."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from attrs import field, frozen

from ryecore.display.figures import compact, dollars, duration
from ryecore.display.sanitize import to_one_line
from ryecore.display.text import StyledText, main_line, shown
from ryecore.graph.model import AgentVertex, ForeachVertex, Graph
from ryecore.graph.view.seen import NodeSeen, RunSeen
from ryecore.graph.view.text import MARKS, Facts, add_facts, add_nodes, happened
from ryecore.policy.budget import NOTHING, Amount
from ryecore.state.model import MICROCENTS_PER_USD, ThreadRecord

__all__ = ["RunView", "StepSeen"]

_MOST_STATE: Final = 40
_MOST_STEPS: Final = 12
_WIDTH: Final = 80


@frozen
class StepSeen:
    """A checkpoint of a run, which it can be resumed from.

    Attributes:
        step: How many nodes were run before it: what `--at` names.
        node: The node that comes next; None where the run has come to its end.
    """

    step: int
    node: str | None


@frozen(kw_only=True, repr=False)
class RunView:
    """One run of a graph: what happened at each node, and how it can be gone on with.

    Attributes:
        record: Its row in the registry.
        seen: What happened, node by node.
        folder: Its folder below `.ai/state/threads`.
        inputs: What it was given.
        state: The state behind the last checkpoint; None where it can't be read.
        checkpoints: The last checkpoints, at most 1,000, oldest first.
        is_unknown: Whether something had begun when its process died, and nobody knows whether
            it was done: to resume it you have to say so.
        only: The single node that it was of; empty where it walks the graph.
        followed_by: The run that goes on with it; None where none does.
        cost: The money and the tokens that it and all below it have used.
        graph: Its graph as it is now; None where that can't be loaded.
        is_changed: Whether the graph has changed since the run began.
        problem: What could not be read of it; empty where all could.
    """

    record: ThreadRecord
    seen: RunSeen
    folder: str
    inputs: Mapping[str, object] = field(factory=dict)
    state: Mapping[str, object] | None = None
    checkpoints: tuple[StepSeen, ...] = ()
    is_unknown: bool = False
    only: str = ""
    followed_by: str | None = None
    cost: Amount = NOTHING
    graph: Graph | None = None
    is_changed: bool = False
    problem: str = ""

    @property
    def lasted_s(self) -> float:
        """How long it took, or has taken so far, in seconds."""
        until = _seconds(self.record.completed_at) if self.record.completed_at else time.time()
        return until - _seconds(self.record.created_at)

    @property
    def run_id(self) -> str:
        """What `rye.graphs`, `rye.threads` and the command line know it by."""
        return self.record.thread_id

    @property
    def item_id(self) -> str:
        """The graph, as a canonical ref."""
        return self.record.item_id

    @property
    def status(self) -> str:
        """Where it stands: running, completed, completed_with_errors, error, cancelled, killed."""
        is_partly = self.seen.status == "completed_with_errors"
        return self.seen.status if is_partly else self.record.status

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.record.ended

    @property
    def nodes(self) -> Mapping[str, NodeSeen]:
        """What happened at each node that was come to, by its id."""
        return self.seen.nodes

    @property
    def node(self) -> str | None:
        """The node where it stands; None where it has come to its end."""
        return self.seen.node

    @property
    def steps(self) -> int:
        """How many nodes were run."""
        return self.seen.steps

    @property
    def error(self) -> str | None:
        """Why it failed; None where it didn't."""
        return self.seen.error or None

    @property
    def next_step(self) -> str:
        """The command that goes on with it; empty where there is nothing to go on with.

        A node that refused its parameters refuses them again: then it names what can change them.
        """
        if self.followed_by is not None:
            return f"rye graph show {self.followed_by}"
        if not self.ended:
            return f"rye threads wait {self.run_id}"
        if self.record.status == "completed" or self.only or not self.seen.started_at:
            return ""
        if self._refused_parameters and not self.is_changed:
            if any(one.status == "completed" for one in self.nodes.values()):
                return f"rye graph resume {self.run_id} --set KEY=VALUE"
            return f"rye graph run {self.item_id} KEY=VALUE"
        unknown = self._answers if self.is_unknown else ""
        changed = " --changed" if self.is_changed else ""
        return f"rye graph resume {self.run_id}{changed}{unknown}"

    @property
    def _answers(self) -> str:
        """The options that say what came of what was broken off."""
        node = self.graph.nodes.get(self.node or "") if self.graph is not None else None
        if isinstance(node, ForeachVertex):
            return " --member INDEX=JSON for each that was done, and --rerun for the others"
        return " --rerun, or --result JSON where it was done"

    @property
    def _refused_parameters(self) -> bool:
        """Whether it failed since a node's parameters don't fit, which no second try changes."""
        node = self.graph.nodes.get(self.node or "") if self.graph is not None else None
        return self.seen.code == "validation" and not isinstance(node, AgentVertex)

    def to_dict(self) -> dict[str, object]:
        """The run as a JSON-ready object."""
        record = self.record
        return {
            "run_id": self.run_id,
            "item_id": self.item_id,
            "status": self.status,
            "node": self.node,
            "steps": self.steps,
            "error": self.error,
            "created_at": record.created_at,
            "completed_at": record.completed_at,
            "parent_id": record.parent_id,
            "continuation_of": record.continuation_of,
            "followed_by": self.followed_by,
            "inputs": dict(self.inputs),
            "nodes": {name: one.to_dict() for name, one in self.nodes.items()},
            "state": None if self.state is None else dict(self.state),
            "checkpoints": [{"step": one.step, "node": one.node} for one in self.checkpoints],
            "cost": {
                "tokens": self.cost.tokens,
                "spend": self.cost.spend_microcents / MICROCENTS_PER_USD,
            },
            "is_unknown": self.is_unknown,
            "is_changed": self.is_changed,
            "folder": self.folder,
            "problem": self.problem or None,
            "next_step": self.next_step or None,
        }

    def render(self, *, width: int = _WIDTH) -> StyledText:
        """The run for a terminal or a notebook: each node with what happened there.

        Args:
            width: How many columns there are.
        """
        text = StyledText()
        self._add_head(text, width)
        text.line("")
        if self.graph is not None:
            add_nodes(text, self.graph, self.seen, width=width)
        else:
            for name, one in self.nodes.items():
                mark = MARKS[one.status]
                text.line(
                    mark, (to_one_line(name), "strong"), ("  " + "  ".join(happened(one)), "dim")
                )
        if self.state:
            text.line("")
            facts: Facts = [
                ("state" if not at else "", [(f"{key} = ", "dim"), shown(value)])
                for at, (key, value) in enumerate(self.state.items())
                if at < _MOST_STATE
            ]
            if len(self.state) > _MOST_STATE:
                facts.append(("", [(f"… {len(self.state) - _MOST_STATE} more", "dim")]))
            add_facts(text, facts, width)
        if self.next_step:
            text.line(("  next    ", "dim"), self.next_step)  # whole: it is there to be copied
        return text

    def _add_head(self, text: StyledText, width: int) -> None:
        record = self.record
        mark = MARKS[self.status]
        text.line(
            mark,
            (self.run_id, "id"),
            (f"  {self.status.replace('_', ' ')}", mark[1]),
            (f"  {duration(self.lasted_s)}", ""),
            (f"  {self.steps:,} step{'' if self.steps == 1 else 's'}", "dim"),
        )
        facts: Facts = [("graph", [(self.item_id, "strong")])]
        if self.is_changed:
            facts[0][1].append(("  changed since it began", "warn"))
        facts.append(("since", [record.created_at]))
        facts.append(("folder", [self.folder]))
        if self.inputs:
            given = ", ".join(f"{key} = {shown(one)}" for key, one in self.inputs.items())
            facts.append(("inputs", [given]))
        if self.cost != NOTHING:
            spent = f"{compact(self.cost.tokens)} tokens, {dollars(self.cost.spend_microcents)}"
            facts.append(("cost", [spent]))
        if record.continuation_of is not None:
            facts.append(("goes on", [("from ", "dim"), (record.continuation_of, "id")]))
        if self.followed_by is not None:
            facts.append(("went on", [("as ", "dim"), (self.followed_by, "id")]))
        if self.error:
            facts.append(("error", [(main_line(self.error), "bad")]))
        if self.problem:
            facts.append(("unread", [(self.problem, "warn")]))
        if self.node is not None and self.ended:
            facts.append(("stands", [f"before {self.node}, behind step {self.steps}"]))
        if self.ended and self.checkpoints:
            latest = self.checkpoints[-_MOST_STEPS:]
            more = "… " if len(latest) < len(self.checkpoints) else ""
            said = ", ".join(f"{one.step} {one.node}" for one in latest if one.node is not None)
            facts.append(("--at", [f"{more}{said}"]))
        add_facts(text, facts, width)

    def __repr__(self) -> str:
        return f"RunView({self.run_id!r}, {self.status})"

    def __str__(self) -> str:
        return self.render().plain()

    def _repr_html_(self) -> str:
        html = self.render().html()
        if self.graph is None:
            return html
        from ryecore.display import to_html  # noqa: PLC0415 - for notebooks alone
        from ryecore.graph.view.picture import graph_picture  # noqa: PLC0415

        return to_html(graph_picture(self.graph, self.seen)) + html


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
