"""The planner of directives' threads, which takes the steps that read files.

Every step is fast where nothing has changed: content is cached with a witness, which detects a
changed file, or one that newly shadows it, at once.

Source: docs/design/threads.md#steps.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ryecore.caches import BoundedDict
from ryecore.chain.config import ConfigResolver
from ryecore.chain.spec import ConfigSpec
from ryecore.chain.trace import Remembered, Trace
from ryecore.convert.config import Configuration
from ryecore.directives.hooks import read_hooks
from ryecore.directives.inputs import resolve_inputs
from ryecore.directives.model import ContextSpec, Directive, compose, extends_by_hook
from ryecore.directives.model_names import AGENT_CONFIG, choose_model, read_model_names
from ryecore.directives.parser import parse_directive
from ryecore.directives.permissions import AcknowledgedRisk, Permissions
from ryecore.errors import ChainTooDeep, CircularDependency, InputError, MetadataError
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import SpaceName, Spaces, locate
from ryecore.items.verification import VerifiedItem, Verifier
from ryecore.lillux.witness import Evidence
from ryecore.policy.hooks import Hook, HookLayer, HooksByEvent, by_event, in_order
from ryecore.policy.limits import DEFAULT_LIMITS, LayeredLimits, Limits
from ryecore.policy.permissions import attenuate
from ryecore.state.pruning import Retention
from ryecore.threads.calls.returning import return_tool
from ryecore.threads.planner.classification import ERROR_CONFIG, Classification, read_classification
from ryecore.threads.planner.risk import RISK_CONFIG, RiskReport, Risks, judge, read_risks
from ryecore.threads.planner.settings import (
    RESILIENCE_CONFIG,
    RETENTION_CONFIG,
    LoopConfig,
    read_limits_section,
    read_loop_config,
    read_retention,
)
from ryecore.tools.definition import ToolDef

__all__ = [
    "MAX_EXTENDS",
    "Composed",
    "DirectivePlan",
    "DirectivePlanner",
    "LoadedDirective",
    "PreparedDirective",
    "ThreadSettings",
    "check_body",
    "layered_limits",
]


@frozen(eq=False)
class LoadedDirective:
    """A verified file and the directive in it, with its placeholders: one while it is unchanged."""

    item: VerifiedItem
    directive: Directive

    @property
    def id(self) -> str:
        """The directive's id, without the kind."""
        return self.item.source.ref.id


@frozen
class Composed:
    """A directive merged with those that it extends, of which `ancestors` has the nearest first.

    The permissions are its own, or those of the nearest ancestor that declares any. Hooks and
    context are those of all, the root's first.
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
        limits: The caller's limits over those of directive, configuration and defaults.
        capabilities: Its capabilities, within the caller's.
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


@frozen(eq=False)
class ThreadSettings:
    """The signed configuration of a thread, of all layers: one while no file of it is changed.

    `limits` has the defaults, too.
    """

    hooks: tuple[Hook, ...]
    limits: Limits
    loop: LoopConfig
    risks: Risks
    classification: Classification


@frozen(eq=False)
class PreparedDirective:
    """What the threads of one directive have in common while its files are unchanged.

    Attributes:
        composed: The directive, merged with those that it extends.
        limits: Its limits over those of configuration, without a caller's.
        risks: The verdict on all of its capabilities.
        hooks: Its own hooks, and those of configuration.
        returns: The tool that returns its outputs; None where it declares none.
    """

    composed: Composed
    limits: LayeredLimits
    risks: RiskReport
    hooks: HooksByEvent
    returns: ToolDef | None


T = TypeVar("T")

_MAX_PREPARED: Final = 256
_NO_LIMITS: Final = Limits()

MAX_EXTENDS: Final = 10
"""The most directives of an extends chain, the first one included."""

_AGENT: Final = ConfigSpec(AGENT_CONFIG, signed=True)
_RESILIENCE: Final = ConfigSpec(RESILIENCE_CONFIG, signed=True)
_RETENTION: Final = ConfigSpec(RETENTION_CONFIG, signed=True)
_RISK: Final = ConfigSpec(RISK_CONFIG, signed=True)
_ERRORS: Final = ConfigSpec(ERROR_CONFIG, signed=True)
_HOOKS: Final = ConfigSpec("agent/hooks.yaml", signed=True)
_BUILT_IN_HOOKS: Final = ConfigSpec("agent/hook_conditions.yaml", signed=True)
_HOOK_LAYERS: Final[Mapping[str, HookLayer]] = {
    "host": HookLayer.USER,
    "user": HookLayer.USER,
    "project": HookLayer.PROJECT,
}


class DirectivePlanner:
    """The planner, which reads directives and the signed configuration of agents step by step.

    Every method is synchronous, may read files, and may be called from several threads at once.
    """

    def __init__(self, spaces: Spaces, verifier: Verifier, configs: ConfigResolver) -> None:
        self._spaces = spaces
        self._verifier = verifier
        self._configs = configs
        self._remembered = Remembered()
        self._prepared: BoundedDict[tuple[object, ...], PreparedDirective] = BoundedDict(
            _MAX_PREPARED
        )

    def load(self, ref: ItemRef, log: Trace) -> LoadedDirective:
        """Find, verify and read a directive: step 3."""
        return self._load(ref, "project", log)

    def _load(self, ref: ItemRef, found_from: SpaceName, log: Trace) -> LoadedDirective:
        def read(log: Trace, evidence: Evidence) -> LoadedDirective:
            return self._read(ref, found_from, log, evidence)

        return self._remembered.recall((ref, found_from), log, read)

    def _read(
        self, ref: ItemRef, found_from: SpaceName, log: Trace, evidence: Evidence
    ) -> LoadedDirective:
        with log.failing("resolve", item_id=ref.id):
            source = locate(ref, self._spaces.from_space(found_from), evidence=evidence)
        log.add(
            "resolve",
            item_id=ref.id,
            path=str(source.path),
            space=source.space.label,
            shadowed=[{"path": str(path), "space": space.label} for path, space in source.shadowed],
        )
        with log.failing("verify_integrity", item_id=ref.id, verified=False):
            item = self._verifier.verify(source, evidence)
        log.add(
            "verify_integrity", item_id=ref.id, verified=item.is_verified, key_fp=item.fingerprint
        )
        with log.failing("read_metadata", item_id=ref.id):
            directive = parse_directive(item.content, source.path)
            _check_category(directive.category, item)
        log.add(
            "read_metadata",
            item_id=ref.id,
            version=directive.version,
            inputs=[one.name for one in directive.inputs],
        )
        return LoadedDirective(item, directive)

    def inputs(
        self, loaded: LoadedDirective, given: Mapping[str, object], log: Trace
    ) -> dict[str, object]:
        """Return a directive's inputs, defaults applied, each of its declared type: step 3."""
        with log.failing("inputs", item_id=loaded.id):
            inputs = resolve_inputs(loaded.directive.inputs, given)
        # Only names: a value may be a secret.
        log.add(
            "inputs",
            item_id=loaded.id,
            given=sorted(given),
            defaults=[name for name in inputs if name not in given],
        )
        return inputs

    def model(self, wanted: str, log: Trace) -> str:
        """Resolve `provider/model`, a tier or a name of `agent/agent.yaml` to `provider/model`."""
        if not isinstance(wanted, str):  # a caller may pass anything
            raise InputError("A model is named by text.", next_step="Write provider/model.")
        # A full model name needs no configuration.
        names = {} if "/" in wanted else self._recall(_AGENT, read_model_names, log)
        with log.failing("resolve_model", wanted=wanted):
            model = choose_model(wanted, names)
        log.add("resolve_model", wanted=wanted, model=model)
        return model

    def settings(self, log: Trace) -> ThreadSettings:
        """Read all of a thread's configuration, with one check that no file has changed."""
        return self._remembered.recall(ThreadSettings, log, self._read_settings)

    def _read_settings(self, log: Trace, evidence: Evidence) -> ThreadSettings:
        def read(spec: ConfigSpec, parse: Callable[[Configuration], T]) -> T:
            return parse(self._configs.configuration(spec, log, evidence))

        return ThreadSettings(
            hooks=self._read_hooks(log, evidence),
            limits=self._read_limits(log, evidence),
            loop=read(_RESILIENCE, read_loop_config),
            risks=read(_RISK, read_risks),
            classification=read(_ERRORS, read_classification),
        )

    def hooks(self, log: Trace) -> tuple[Hook, ...]:
        """Return the hooks of every `agent/hooks.yaml` and the built-in ones, each in its layer."""
        return self._remembered.recall(_HOOKS, log, self._read_hooks)

    def _read_hooks(self, log: Trace, evidence: Evidence) -> tuple[Hook, ...]:
        layers = [
            *self._configs.layers(_HOOKS, log, evidence),
            # Only the system bundle defines this one.
            *(
                layer
                for layer in self._configs.layers(_BUILT_IN_HOOKS, log, evidence)
                if layer.name.startswith("system")
            ),
        ]
        return tuple(
            hook
            for layer in layers
            for hook in read_hooks(
                layer.configuration(), _HOOK_LAYERS.get(layer.name, HookLayer.BUILT_IN)
            )
        )

    def extends(
        self,
        loaded: LoadedDirective,
        inputs: Mapping[str, object],
        model: str | None,
        hooks: Sequence[Hook],
    ) -> str | None:
        """Return the id of the directive that another one extends, which a hook may choose: step 4.

        The directive's own hooks take part.

        Source: docs/design/threads.md#extends.
        """
        directive = loaded.directive
        asked = [one for one in (*directive.hooks, *hooks) if one.event == "resolve_extends"]
        if not asked:
            return directive.extends
        context = {
            "directive": loaded.id,
            "has_extends": directive.extends is not None,
            "category": loaded.id.rpartition("/")[0],
            "inputs": inputs,
            "model": model,
        }
        return extends_by_hook(asked, context) or directive.extends

    def compose(self, loaded: LoadedDirective, extends: str | None, log: Trace) -> Composed:
        """Merge a directive with verified ones that it extends, `MAX_EXTENDS` at most: step 5."""
        return _composed(loaded, self._ancestors(loaded, extends, log))

    def prepare(
        self, loaded: LoadedDirective, extends: str | None, settings: ThreadSettings, log: Trace
    ) -> PreparedDirective:
        """Compose a directive as `compose`, and judge what doesn't depend on a thread's caller.

        It is made once for verified files, each of which is verified anew for each thread.
        """
        ancestors = self._ancestors(loaded, extends, log)
        key = (settings, loaded, *ancestors)  # by identity
        found = self._prepared.get(key)
        if found is None:
            composed = _composed(loaded, ancestors)
            permissions = composed.permissions
            capabilities = attenuate(permissions.capabilities, None)
            found = self._prepared[key] = PreparedDirective(
                composed,
                layered_limits(settings.limits, loaded.directive.limits, _NO_LIMITS),
                judge(capabilities, permissions.risks, settings.risks),
                by_event((*composed.hooks, *settings.hooks)),
                return_tool(loaded.directive.outputs),
            )
        return found

    def _ancestors(
        self, loaded: LoadedDirective, extends: str | None, log: Trace
    ) -> tuple[LoadedDirective, ...]:
        chain = [loaded]
        while extends is not None:
            ids = [one.id for one in chain]
            with log.failing("resolve_extends", item_id=extends):
                if extends in ids:
                    raise CircularDependency(
                        f"Circular extends chain: {' -> '.join((*ids, extends))}.",
                        next_step="Let one of them extend another directive, or none.",
                    )
                if len(chain) >= MAX_EXTENDS:
                    raise ChainTooDeep(
                        f"The extends chain of {ids[0]} is too deep: more than {MAX_EXTENDS} "
                        "directives.",
                        next_step="Let it extend a directive nearer to the root.",
                    )
            found_from = chain[-1].item.source.space.name
            chain.append(self._load(ItemRef("directive", extends), found_from, log))
            extends = chain[-1].directive.extends
        if len(chain) > 1:
            log.add("resolve_extends", item_id=loaded.id, chain=[one.id for one in chain])
        return tuple(chain[1:])

    def limits(self, declared: Limits, overrides: Limits, log: Trace) -> LayeredLimits:
        """Return the limits of a thread, without its parent's bounds: step 7.

        Source: docs/design/threads.md#limits.
        """
        configured = self._remembered.recall(_RESILIENCE, log, self._read_limits)
        return layered_limits(configured, declared, overrides)

    def _read_limits(self, log: Trace, evidence: Evidence) -> Limits:
        limits = DEFAULT_LIMITS
        for layer in self._configs.layers(_RESILIENCE, log, evidence):
            limits = limits.under(read_limits_section(layer.configuration()))
        return limits

    def loop_config(self, log: Trace | None = None) -> LoopConfig:
        """Read the configuration of threads' loops."""
        return self._recall(_RESILIENCE, read_loop_config, log or Trace())

    def retention(self) -> Retention | None:
        """Read the retention of ended threads; None, for keeping all, where no file sets one."""
        return self._recall(_RETENTION, read_retention, Trace())

    def _recall(self, spec: ConfigSpec, read: Callable[[Configuration], T], log: Trace) -> T:
        """Return the parsed content of merged configuration layers, cached while unchanged."""
        return self._remembered.recall(
            (spec, read),
            log,
            lambda log, evidence: read(self._configs.configuration(spec, log, evidence)),
        )

    def plan(
        self,
        loaded: LoadedDirective,
        inputs: Mapping[str, object],
        *,
        model: str | None,
        overrides: Limits,
        held: Iterable[str] | None,
        log: Trace,
    ) -> DirectivePlan:
        """Plan a directive's thread, from the results of `inputs` and `model`. Nothing is started.

        `held` are the caller's capabilities; None for the host, which may do everything.
        """
        directive, problem = loaded.directive, None
        wanted = directive.model.wanted if directive.model else None
        if model is None and wanted is not None:
            try:
                model = self.model(wanted, log)
            except (
                InputError
            ) as error:  # only a thread needs a model, so a dry run reports the error and continues
                problem = str(error)
        configured = self.hooks(log)
        extends = self.extends(loaded, inputs, model, configured)
        composed = self.compose(loaded, extends, log)
        return DirectivePlan(
            directive=directive.with_inputs(inputs),
            extends=composed.extends,
            model=model,
            model_problem=problem,
            limits=self.limits(directive.limits, overrides, log).limits,
            capabilities=attenuate(composed.permissions.capabilities, held),
            risks=composed.permissions.risks,
            hooks=in_order((*composed.hooks, *configured)),
            context=composed.context,
        )


def _composed(loaded: LoadedDirective, ancestors: tuple[LoadedDirective, ...]) -> Composed:
    found = compose((loaded.directive, *(one.directive for one in ancestors)))
    return Composed(ancestors, found.permissions, found.hooks, found.context)


def layered_limits(configured: Limits, declared: Limits, overrides: Limits) -> LayeredLimits:
    """Return the limits of configuration, under those of the directive, under the caller's."""
    asked = declared.under(overrides)
    return LayeredLimits(
        configured.under(asked),
        declares_spend=asked.spend_usd is not None,
        declares_tokens=asked.tokens is not None,
    )


def check_body(loaded: LoadedDirective) -> None:
    """Refuse a directive without instructions."""
    if not loaded.directive.body:
        raise MetadataError(
            f"{loaded.item.source.path} has no instructions after its XML block.",
            next_step="Write them there, and sign it again.",
            path=loaded.item.source.path,
        )


def _check_category(declared: str | None, item: VerifiedItem) -> None:
    source = item.source
    actual = source.ref.id.rpartition("/")[0]
    if declared is not None and declared != actual:
        raise MetadataError(
            f"{source.path} declares the category '{declared}' and stands in '{actual}'.",
            next_step="Correct the one or move the other, then sign it again.",
            path=source.path,
        )
