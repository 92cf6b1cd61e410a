"""A chain made ready: everything about an execution that doesn't depend on its parameters.

It is remembered with a witness of all that was seen on disk: every file is read and hashed again
before each use, and every path that was absent must still be, so a change or a new shadow is
noticed at once.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ryecore.caches import BoundedDict
from ryecore.chain.arguments import FORK_POINT
from ryecore.chain.builder import ChainBuilder, ChainValidator
from ryecore.chain.config import ConfigResolver
from ryecore.chain.dotenv import Dotenv
from ryecore.chain.environment import EnvResolver, apply_env_paths
from ryecore.chain.layout import SealedLayout, Sealer
from ryecore.chain.model import ValidChain
from ryecore.chain.plan import PlanInputs, Planner, positive_number
from ryecore.chain.spec import ConfigSpec
from ryecore.chain.templating import ConfigTemplate
from ryecore.chain.trace import Event, Trace
from ryecore.errors import MetadataError, RyeError
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.items.signature import utc_now
from ryecore.lillux.schema import SchemaValidator
from ryecore.lillux.witness import Evidence, Witness

__all__ = ["ChainCache", "PreparedChain", "Preparer"]

_EXECUTION = ConfigSpec("execution/execution.yaml", signed=True)
_MAX_REMEMBERED = 4096


@frozen
class PreparedChain:
    """A chain that may run with parameters; without a witness it can't be remembered."""

    chain: ValidChain
    layout: SealedLayout
    timeout_s: float | None
    schema: SchemaValidator | None
    programs: tuple[str, ...]
    planner: Planner
    dotenv: Dotenv
    events: tuple[Event, ...]
    witness: Witness | None
    expires_at: str | None

    def holds(self) -> bool:
        """Return whether everything on disk is as it was when this was made."""
        if self.witness is None or not self.witness.holds():
            return False
        if not all(os.access(program, os.X_OK) for program in self.programs):
            return False
        return self.expires_at is None or utc_now() <= self.expires_at


class ChainCache:
    """Remembers prepared chains by ref, for one project."""

    def __init__(self) -> None:
        self._entries: BoundedDict[ItemRef, PreparedChain] = BoundedDict(_MAX_REMEMBERED)

    def get(self, ref: ItemRef) -> PreparedChain | None:
        """Return a chain that still holds, or None."""
        found = self._entries.get(ref)
        if found is None:
            return None
        if found.holds():
            return found
        self.forget(ref)
        return None

    def put(self, ref: ItemRef, prepared: PreparedChain) -> None:
        """Remember a chain, where that is possible."""
        if prepared.witness is None:
            return
        self._entries[ref] = prepared

    def forget(self, ref: ItemRef) -> None:
        """Have a chain made anew the next time."""
        self._entries.pop(ref, None)


class Preparer:
    """Makes chains ready: build, validate, seal, resolve environment and configuration."""

    def __init__(
        self,
        builder: ChainBuilder,
        sealer: Sealer,
        environments: EnvResolver,
        configs: ConfigResolver,
        places: Mapping[str, str],
    ) -> None:
        self._builder = builder
        self._validator = ChainValidator()
        self._sealer = sealer
        self._environments = environments
        self._configs = configs
        self._places = places

    def prepare(self, ref: ItemRef, trace: Trace) -> PreparedChain:
        """Make a chain ready. The trace records every decision; it ends with the failing one."""
        evidence = Evidence()
        before = len(trace.events)
        built = self._builder.build(ref, trace, evidence)
        try:
            with trace.failing("validate_chain"):
                chain = self._validator.validate_chain(built)
            trace.add(
                "validate_chain",
                pairs=[list(pair) for pair in chain.validated_pairs],
                warnings=list(chain.warnings),
            )
            return self._resolve(chain, trace, evidence, before)
        except RyeError as error:
            error.during(str(ref), chain=built.ids)
            raise

    def _resolve(
        self, chain: ValidChain, trace: Trace, evidence: Evidence, before: int
    ) -> PreparedChain:
        layout = self._sealer.lay_out(chain, trace, evidence)
        context: dict[str, object] = {
            **self._places,
            **layout.values,
            "space_path": self._space_path(chain),
        }
        if any(element.spec.warm for element in chain.elements):
            context[FORK_POINT] = ""  # be it used or not
        if _runs_on_own_interpreter(chain):
            # It starts programs itself, and has to know which of them may run.
            is_trusted = self._environments.is_project_trusted(evidence)
            context["project_trusted"] = "yes" if is_trusted else "no"
        environment = self._environments.resolve(chain, context, trace, evidence)
        context["server_variables"] = ",".join(environment.server_variables)
        env, cwd = self._anchor_effects(layout, environment.variables, context, trace, evidence)
        resolved = self._configs.for_chain(
            [element.spec for element in chain.elements], trace, evidence
        )
        execution = self._configs.resolve(_EXECUTION, trace, evidence)
        with trace.failing("resolve_config", path=_EXECUTION.path):
            timeout_s = _timeout_of(execution, chain.head.item_id)
        with trace.failing("read_metadata", item_id=chain.head.item_id):
            schema = _schema_of(chain)
        planner = Planner(
            chain,
            PlanInputs({}, context, env, cwd, resolved, warm=layout.warm),
            layout.deps,
        )
        with trace.failing("plan", item_id=chain.head.item_id):
            planner.check()
        return PreparedChain(
            chain=chain,
            layout=layout,
            timeout_s=timeout_s,
            schema=schema,
            programs=tuple(
                env[element.spec.env.interpreter.var]
                for element in chain.all_elements
                if element.spec.env.interpreter is not None
            ),
            planner=planner,
            dotenv=environment.dotenv,
            events=trace.events[before:],
            witness=evidence.witness() if evidence.may_remember else None,
            expires_at=evidence.expires_at,
        )

    def _space_path(self, chain: ValidChain) -> str:
        """Return the folder of the space that the linked item comes from, else that of the tool.

        A program that is started there, and not in a project that its author never saw, finds
        nothing of that project in its working folder. Source: decision 78.
        """
        item = next((link.element.item for link in chain.links), chain.head.item)
        if item is None or item.source.space.name == "project":
            return self._places["project_path"]
        folder = self._places["user_space"]
        return folder if Path(folder).is_dir() else "/"

    def _anchor_effects(
        self,
        layout: SealedLayout,
        env: Mapping[str, str],
        context: Mapping[str, object],
        trace: Trace,
        evidence: Evidence,
    ) -> tuple[Mapping[str, str], str]:
        project = self._places["project_path"]
        if layout.anchor is None or layout.anchor_path is None:
            return env, project

        def render(text: str) -> str | None:
            template = ConfigTemplate(env, context)
            rendered = template.text(text)
            return None if template.unknown else rendered

        def render_program_folder(text: str) -> str | None:
            folder = render(text)
            # Nobody vouches for the programs of a package folder that is only linked.
            if folder is None or layout.deps != "unverified":
                return folder
            if self._environments.may_search(folder, evidence):
                return folder
            trace.add("resolve_env", contributed_by="anchor", narrowed=["PATH"])
            return None

        cwd = render(layout.anchor.cwd) if layout.anchor.cwd is not None else None
        changed = env
        for name, change in layout.anchor.env_paths.items():
            by = render_program_folder if name == "PATH" else render
            changed = apply_env_paths(changed, {name: change}, by)
        return changed, cwd or project


def _runs_on_own_interpreter(chain: ValidChain) -> bool:
    interpreters = (element.spec.env.interpreter for element in chain.elements)
    return any(one is not None and one.type == "own" for one in interpreters)


def _timeout_of(execution: Mapping[str, Any], item_id: str) -> float | None:
    tools = execution.get("tools")
    settings = tools.get(item_id) if isinstance(tools, Mapping) else None
    timeout = settings.get("timeout") if isinstance(settings, Mapping) else None
    return None if timeout is None else positive_number(timeout, f"{_EXECUTION.path}: timeout")


def _schema_of(chain: ValidChain) -> SchemaValidator | None:
    schema = chain.head.spec.config_schema
    if schema is None:
        return None
    try:
        return SchemaValidator(json.dumps(schema))
    except ValueError as problem:
        path = chain.head.path
        raise MetadataError(
            f"{path} declares a CONFIG_SCHEMA that is not a JSON Schema: {problem}.",
            next_step="Correct it and sign it again.",
            path=path,
        ) from None
