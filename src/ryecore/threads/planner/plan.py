"""The plan of a directive's thread."""

from attrs import frozen

from ryecore.directives.model import ContextSpec, Directive
from ryecore.directives.permissions import AcknowledgedRisk, Permissions
from ryecore.items.verification import VerifiedItem
from ryecore.policy.hooks import Hook
from ryecore.policy.limits import Limits

__all__ = ["Composed", "DirectivePlan", "LoadedDirective"]


@frozen
class LoadedDirective:
    """A verified directive.

    Attributes:
        item: The verified file.
        directive: The parsed directive, with its placeholders.
    """

    item: VerifiedItem
    directive: Directive

    @property
    def id(self) -> str:
        """The directive's id, without the kind."""
        return self.item.source.ref.id


@frozen
class Composed:
    """A directive merged with those that it extends.

    Attributes:
        ancestors: The directives that it extends, the nearest first.
        permissions: Its own permissions, or those of the nearest ancestor that declares any.
        hooks: The hooks of all, the root's first.
        context: The knowledge around its prompt, the root's first.
    """

    ancestors: tuple[LoadedDirective, ...]
    permissions: Permissions
    hooks: tuple[Hook, ...]
    context: ContextSpec

    @property
    def extends(self) -> tuple[str, ...]:
        """The ids of the directives that it extends, the nearest first."""
        return tuple(one.id for one in self.ancestors)


@frozen
class DirectivePlan:
    """The plan of a directive's thread, which a dry run shows.

    Attributes:
        directive: The directive, with the inputs put in.
        extends: The directives that it extends, the nearest first.
        model: The model as `provider/model`; None where none is named or it can't be resolved.
        model_problem: Why the model that the directive names can't be resolved.
        limits: The caller's limits over those of directive, configuration and defaults.
        capabilities: Its capabilities, within the caller's.
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
        """Return the plan as the JSON-ready object of a dry run."""
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
