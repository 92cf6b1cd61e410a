"""What comes of executing a directive."""

from collections.abc import Mapping

from attrs import field, frozen

from ryecore.actions.render import render_directive
from ryecore.chain.model import ExecutionResult
from ryecore.directives.model import ContextSpec, Directive
from ryecore.directives.permissions import AcknowledgedRisk
from ryecore.policy.hooks import Hook
from ryecore.policy.limits import Limits
from ryecore.styled import StyledText

__all__ = ["DirectivePlan", "DirectiveResult"]

_MAX_REPR = 60


@frozen
class DirectivePlan:
    """What a directive's thread would run under. A dry run shows it.

    Attributes:
        directive: The directive, inputs put in.
        extends: The directives that it extends, the nearest first.
        model: The model as `provider/model`; None where none is named or it can't be resolved.
        model_problem: Why the model that the directive names can't be resolved.
        limits: Defaults, under configuration, under the directive, under the caller's.
        capabilities: What it may do, within what the caller may.
        risks: The risks that are acknowledged.
        hooks: The hooks of every layer, in order.
        context: The knowledge around its prompt.
    """

    directive: Directive
    extends: tuple[str, ...]
    model: str | None
    model_problem: str | None
    limits: Limits
    capabilities: tuple[str, ...]
    risks: tuple[AcknowledgedRisk, ...]
    hooks: tuple[Hook, ...]
    context: ContextSpec

    def to_dict(self) -> dict[str, object]:
        """The plan as a dry run shows it."""
        shown: dict[str, object] = {"extends": list(self.extends), "model": self.model}
        if self.model_problem is not None:
            shown["model_problem"] = self.model_problem
        return shown | {
            "limits": self.limits.to_dict(),
            "permissions": list(self.capabilities),
            "acknowledged_risks": [{"risk": one.risk, "reason": one.reason} for one in self.risks],
            "hooks": [hook.to_dict() for hook in self.hooks],
            "context": self.context.to_dict(),
        }


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

        Source: seed 001, "In-thread response"; decision 33.
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
