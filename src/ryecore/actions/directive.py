"""Execute a directive inline: verify it, check its inputs, hand out its directions.

No model is needed. A dry run shows what its thread would run under.
"""

import time
from collections.abc import Mapping
from typing import Final

import anyio.to_thread
from attrs import frozen

from ryecore.actions.options import ExecuteOptions
from ryecore.actions.results import DirectivePlan, DirectiveResult
from ryecore.chain.config import ConfigResolver
from ryecore.chain.model import ValidChain
from ryecore.chain.spec import ConfigSpec
from ryecore.chain.trace import Trace
from ryecore.directives.composition import compose, extends_by_hook
from ryecore.directives.hooks import read_hooks
from ryecore.directives.inputs import input_schema, resolve_inputs
from ryecore.directives.model import Directive
from ryecore.directives.models import AGENT_CONFIG, choose_model
from ryecore.directives.parser import parse_directive
from ryecore.errors import (
    CallCancelled,
    ChainTooDeep,
    CircularDependency,
    ConfigError,
    InputError,
    MetadataError,
    RyeError,
)
from ryecore.items.evidence import Evidence
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import Space, Spaces, locate
from ryecore.items.verification import VerifiedItem, Verifier
from ryecore.policy import CallContext
from ryecore.policy.capabilities import attenuate
from ryecore.policy.hooks import Hook, HookLayer, in_order
from ryecore.policy.limits import DEFAULT_LIMITS, Limits, read_limits

__all__ = ["MAX_EXTENDS", "DirectiveAction"]

MAX_EXTENDS: Final = 10
"""How many directives an extends chain may have, the first one included."""

_AGENT: Final = ConfigSpec(AGENT_CONFIG, signed=True)
_RESILIENCE: Final = ConfigSpec("agent/resilience.yaml", signed=True)
_HOOKS: Final = ConfigSpec("agent/hooks.yaml", signed=True)
_HOOK_LAYERS: Final[Mapping[str, HookLayer]] = {
    "host": HookLayer.USER,
    "user": HookLayer.USER,
    "project": HookLayer.PROJECT,
}


@frozen
class _Loaded:
    """A directive that was verified and read."""

    item: VerifiedItem
    directive: Directive

    @property
    def id(self) -> str:
        return self.item.source.ref.id


class DirectiveAction:
    """Executes directives inline.

    Args:
        spaces: Where directives are looked for.
        verifier: Verifies each one before anything of it is read.
        configs: Reads the signed configuration of agents.
    """

    def __init__(self, spaces: Spaces, verifier: Verifier, configs: ConfigResolver) -> None:
        self._spaces = spaces
        self._verifier = verifier
        self._configs = configs

    async def execute(
        self,
        ref: ItemRef,
        parameters: Mapping[str, object],
        options: ExecuteOptions,
        ctx: CallContext,
    ) -> DirectiveResult:
        """Execute a directive, or show what its thread would run under.

        Args:
            ref: The directive.
            parameters: Its inputs.
            options: How to execute.
            ctx: On whose behalf, within what.

        Returns:
            The directions, or the plan of a dry run.

        Raises:
            RyeError: It can't be found, verified or read, or the inputs don't fit.
        """
        started = time.perf_counter()
        log = Trace(ctx.event_sink)
        try:
            _check_wanted(ref, ctx)
            done = await anyio.to_thread.run_sync(
                self._execute, ref, parameters, options, ctx, log, started
            )
        except RyeError as error:
            error.item_id = str(ref)  # not the ancestor that failed: what was asked for
            error.during(
                str(ref), trace=log.events if options.trace else (), duration_ms=_since(started)
            )
            raise
        return done

    async def schema(self, ref: ItemRef) -> dict[str, object]:
        """The JSON Schema of a directive's inputs.

        Raises:
            RyeError: It can't be found, verified or read.
        """
        try:
            loaded = await anyio.to_thread.run_sync(self._load, ref, self._spaces, Trace())
        except RyeError as error:
            error.during(str(ref))
            raise
        return input_schema(loaded.directive.inputs)

    def _execute(
        self,
        ref: ItemRef,
        parameters: Mapping[str, object],
        options: ExecuteOptions,
        ctx: CallContext,
        log: Trace,
        started: float,
    ) -> DirectiveResult:
        loaded = self._load(ref, self._spaces, log)
        inputs = _inputs(loaded, parameters, log)
        overrides = _overrides(options.limit_overrides)
        model = None if options.model is None else self._model(options.model, log)
        directive = loaded.directive.with_inputs(inputs)
        metadata: dict[str, object] = {}
        if not loaded.item.is_verified:
            metadata["integrity"] = loaded.item.integrity
        plan = None
        if options.dry_run:
            plan = self._plan(loaded, directive, inputs, model, overrides, ctx, log)
        else:
            _check_body(loaded)
            metadata |= {"model": model} if model else {}
            metadata |= {"limits": overrides.to_dict()} if options.limit_overrides else {}
        return DirectiveResult(
            status="validation_passed" if options.dry_run else "success",
            item_id=str(ref),
            data=None if options.dry_run else directive.body,
            error=None,
            chain=ValidChain(()),
            duration_ms=_since(started),
            metadata=metadata,
            trace=log.events if options.trace else None,
            inputs=inputs,
            directive_plan=plan,
        )

    def _load(self, ref: ItemRef, spaces: Spaces | tuple[Space, ...], log: Trace) -> _Loaded:
        with log.failing("resolve", item_id=ref.id):
            source = locate(ref, spaces)
        log.add(
            "resolve",
            item_id=ref.id,
            path=str(source.path),
            space=source.space.label,
            shadowed=[{"path": str(path), "space": space.label} for path, space in source.shadowed],
        )
        with log.failing("verify_integrity", item_id=ref.id, verified=False):
            item = self._verifier.verify(source)
        log.add(
            "verify_integrity", item_id=ref.id, verified=item.is_verified, key_fp=item.fingerprint
        )
        with log.failing("read_metadata", item_id=ref.id):
            directive = parse_directive(item.content, source.path)
            _check_category(directive, item)
        log.add(
            "read_metadata",
            item_id=ref.id,
            version=directive.version,
            inputs=[one.name for one in directive.inputs],
        )
        return _Loaded(item, directive)

    def _model(self, wanted: str, log: Trace) -> str:
        if not isinstance(wanted, str):  # a caller may pass anything
            raise InputError("A model is named by text.", next_step="Write provider/model.")
        # A model that is written out needs no configuration, so none is read.
        config = {} if "/" in wanted else self._configs.resolve(_AGENT, log, Evidence())
        with log.failing("resolve_model", wanted=wanted):
            model = choose_model(wanted, config)
        log.add("resolve_model", wanted=wanted, model=model)
        return model

    def _plan(
        self,
        loaded: _Loaded,
        directive: Directive,
        inputs: Mapping[str, object],
        model: str | None,
        overrides: Limits,
        ctx: CallContext,
        log: Trace,
    ) -> DirectivePlan:
        problem = None
        wanted = directive.model.wanted if directive.model else None
        if model is None and wanted is not None:
            try:
                model = self._model(wanted, log)
            except InputError as error:  # only a thread needs it, so a dry run says so and goes on
                problem = str(error)
        configured = self._hooks(log)
        context = {
            "directive": loaded.id,
            "has_extends": directive.extends is not None,
            "category": loaded.id.rpartition("/")[0],
            "inputs": inputs,
            "model": model,
        }
        first = extends_by_hook((*directive.hooks, *configured), context) or directive.extends
        ancestors = self._ancestors(loaded, first, log)
        composed = compose((directive, *(one.directive for one in ancestors)))
        return DirectivePlan(
            directive=directive,
            extends=tuple(one.id for one in ancestors),
            model=model,
            model_problem=problem,
            limits=self._default_limits(log).under(directive.limits).under(overrides),
            capabilities=attenuate(composed.permissions.capabilities, ctx.capabilities),
            risks=composed.permissions.risks,
            hooks=in_order((*composed.hooks, *configured)),
            context=composed.context,
        )

    def _ancestors(self, loaded: _Loaded, extends: str | None, log: Trace) -> list[_Loaded]:
        """The directives that a directive extends, each verified, the nearest first."""
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
            spaces = self._spaces.from_space(chain[-1].item.source.space.name)
            chain.append(self._load(ItemRef("directive", extends), spaces, log))
            extends = chain[-1].directive.extends
        if len(chain) > 1:
            log.add("resolve_extends", item_id=loaded.id, chain=[one.id for one in chain])
        return chain[1:]

    def _hooks(self, log: Trace) -> list[Hook]:
        """The hooks of every configuration file, each in its own layer."""
        return [
            hook
            for layer in self._configs.layers(_HOOKS, log, Evidence())
            for hook in read_hooks(
                layer.values,
                layer.path or _HOOKS.path,
                _HOOK_LAYERS.get(layer.name, HookLayer.BUILT_IN),
            )
        ]

    def _default_limits(self, log: Trace) -> Limits:
        config = self._configs.resolve(_RESILIENCE, log, Evidence())
        declared = config.get("limits", {})
        try:
            if not isinstance(declared, Mapping):
                raise ValueError("it is no mapping")
            return DEFAULT_LIMITS.under(read_limits(declared))
        except ValueError as problem:
            raise ConfigError(
                f"{_RESILIENCE.path}, limits: {problem}.",
                next_step="Mend the file and sign it again.",
            ) from None


def _check_wanted(ref: ItemRef, ctx: CallContext) -> None:
    if ctx.cancellation is not None and ctx.cancellation.cancelled:
        raise CallCancelled(f"{ref} was cancelled by its caller.")
    if ctx.deadline is not None and ctx.deadline <= time.monotonic():
        raise InputError("The caller's deadline has passed.", next_step="Give it more time.")


def _inputs(loaded: _Loaded, given: Mapping[str, object], log: Trace) -> dict[str, object]:
    with log.failing("inputs", item_id=loaded.id):
        inputs = resolve_inputs(loaded.directive.inputs, given)
    # Names alone: a value may be a secret.
    log.add(
        "inputs",
        item_id=loaded.id,
        given=sorted(given),
        defaults=[name for name in inputs if name not in given],
    )
    return inputs


def _overrides(given: object) -> Limits:
    """The caller's limits.

    Raises:
        InputError: One is unknown, or has a value that can't be.
    """
    if given is None:
        return Limits()
    try:
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise ValueError("it is a mapping of names to numbers")
        return read_limits(given)
    except ValueError as problem:
        raise InputError(
            f"limit_overrides: {problem}.", next_step='Pass such as {"turns": 8, "spend": 0.5}.'
        ) from None


def _check_category(directive: Directive, item: VerifiedItem) -> None:
    source = item.source
    actual = source.ref.id.rpartition("/")[0]
    if directive.category is not None and directive.category != actual:
        raise MetadataError(
            f"{source.path} declares the category '{directive.category}' and stands in '{actual}'.",
            next_step="Correct the one or move the other, then sign it again.",
            path=source.path,
        )


def _check_body(loaded: _Loaded) -> None:
    if not loaded.directive.body:
        raise MetadataError(
            f"{loaded.item.source.path} has no instructions behind its XML block.",
            next_step="Write them there, and sign it again.",
            path=loaded.item.source.path,
        )


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
