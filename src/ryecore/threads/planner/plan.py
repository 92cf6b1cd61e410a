"""What a directive's thread runs under, once its files were read."""

from attrs import frozen

from ryecore.directives.model import ContextSpec, Directive
from ryecore.directives.permissions import AcknowledgedRisk, Permissions
from ryecore.items.verification import VerifiedItem
from ryecore.policy.hooks import Hook
from ryecore.policy.limits import Limits

__all__ = ["Composed", "DirectivePlan", "LoadedDirective"]


@frozen
class LoadedDirective:
    """A directive that was found, verified and read.

    Attributes:
        item: The verified file.
        directive: What it says; its placeholders are still there.
    """

    item: VerifiedItem
    directive: Directive

    @property
    def id(self) -> str:
        """Its id, without the kind."""
        return self.item.source.ref.id


@frozen
class Composed:
    """What a directive is together with those that it extends.

    Attributes:
        ancestors: The directives that it extends, the nearest first.
        permissions: Its own, or its nearest ancestor's that declares any.
        hooks: Its own and theirs, the root's first.
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
        """Return the plan as a dry run shows it."""
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
