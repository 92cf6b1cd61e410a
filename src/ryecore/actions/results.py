"""What comes of executing a directive."""

from collections.abc import Mapping

from attrs import field, frozen

from ryecore.chain.model import ExecutionResult
from ryecore.chain.rendering import render_directive
from ryecore.display.text import StyledText
from ryecore.threads.planner.plan import DirectivePlan

__all__ = ["DirectiveResult"]

_MAX_REPR = 60


@frozen(repr=False)
class DirectiveResult(ExecutionResult):
    """What came of a directive: its directions, or a dry run's plan. It has no chain.

    Attributes:
        inputs: The inputs, defaults applied, each of its declared type.
        directive_plan: What its thread would run under; a dry run's alone.
    """

    inputs: Mapping[str, object] = field(factory=dict)
    directive_plan: DirectivePlan | None = None

    @property
    def your_directions(self) -> str:
        """The instructions to follow, inputs put in; empty after a dry run."""
        return self.data if isinstance(self.data, str) else ""

    def to_dict(self) -> dict[str, object]:
        """The response object that models and MCP clients see.

        Source: docs/design/execute.md#in-thread-response; decision 33.
        """
        result: dict[str, object] = {"status": self.status}
        plan = self.directive_plan
        if plan is not None:
            result["message"] = "Directive validation passed (dry run)"
        result |= {"type": "directive", "item_id": self.item_id}
        if plan is None:
            result["your_directions"] = self.your_directions
        else:
            result |= {
                "data": plan.directive.to_dict(),
                "inputs": dict(self.inputs),
                **plan.to_dict(),
            }
        result["metadata"] = {"duration_ms": round(self.duration_ms), **self.metadata}
        if self.trace is not None:
            result["trace"] = [dict(event) for event in self.trace]
        return result

    def render(self) -> StyledText:
        """The result for a terminal or a notebook."""
        return render_directive(self.to_dict())

    def __repr__(self) -> str:
        first = self.your_directions.partition("\n")[0][:_MAX_REPR]
        return f"DirectiveResult({self.status}, {self.item_id!r}, {first!r})"
