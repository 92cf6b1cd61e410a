"""The reader of a graph's whole file: its top level, its configuration, and its nodes together."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

from attrs import evolve

from ryecore.convert.config import ConfigProblem, Configuration, did_you_mean
from ryecore.convert.lines import Place, bounded, key_path, quoted
from ryecore.directives.hooks import read_hooks
from ryecore.errors import ConfigError
from ryecore.graph.model import DEFAULT_MAX_CONCURRENCY, DEFAULT_MAX_STEPS, Graph, OnError
from ryecore.graph.validation.actions import read_agents
from ryecore.graph.validation.calls import check_permissions
from ryecore.graph.validation.drafts import Draft, check_flow
from ryecore.graph.validation.fields import Count, Fields, Variable
from ryecore.graph.validation.nodes import NodeReader
from ryecore.graph.validation.problems import Problems
from ryecore.graph.validation.references import References
from ryecore.graph.validation.scopes import BUILT_IN, Known, Writer
from ryecore.lillux.schema import SchemaValidator
from ryecore.policy.hooks import Hook, HookLayer

__all__ = ["DocumentReader"]

_BOUNDS: Final = ("timeout", "max_output_bytes")
"""The keys with which any tool may bound its process."""

_CONFIG_KEYS: Final = (
    "start", "max_steps", "max_concurrency", "on_error", "state", "state_schema", "hooks", "agents",
    "nodes", *_BOUNDS,
)  # fmt: skip
_OWN_KEYS: Final = ("permissions", "env_requires", "config_schema", "config")
_TOP_KEYS: Final = (
    *_OWN_KEYS, "description", "version", "tool_type", "executor_id", "category", "config_resolve",
)  # fmt: skip


class DocumentReader:
    """The reader of one graph's file, with the lines of its nodes where they are known."""

    def __init__(
        self, document: Mapping[str, object], lines: Mapping[str, int], problems: Problems
    ) -> None:
        self._problems, self._lines = problems, lines
        self._top = Fields(document, (), problems)
        self._config = Fields(self._top.mapping("config"), ("config",), problems)

    def read(self, graph: Graph) -> Graph | None:
        """Read and check all of it, and add it to the attributes that `graph` has by other means.

        Returns None where it has problems, or none of its nodes can be read.
        """
        top, config = self._top, self._config
        _check_keys_are_text(top.declared, self._problems)
        self._check_top()
        if not top.has("config"):
            self._problems.error((), "config is missing: it holds the nodes.")
            return None
        config.check("config", _CONFIG_KEYS)
        agents = read_agents(config)
        drafts = self._drafts(NodeReader(agents, self._lines))
        start = config.required("start")
        if drafts:
            check_flow(drafts, start, config.at("start"), self._problems)
        hooks = self._hooks(graph.ref.id)
        permissions = top.texts("permissions")
        check_permissions(
            permissions if isinstance(top.declared.get("permissions"), list) else None,
            drafts,
            hooks,
            any(agent is not None and agent.tools for agent in agents.values()),
            self._problems,
        )
        input_schema = self._schema(top, "config_schema")
        state_schema = self._schema(config, "state_schema")
        state = config.mapping("state")
        self._check_state(state, state_schema)
        writers = [Writer(one.type, one.assign, one.collect) for one in drafts.values()]
        known = Known.of(input_schema, state, state_schema, writers)
        references = References(known, self._problems)
        for draft in drafts.values():
            references.check(draft)
        for hook in hooks:
            references.note(hook.condition)
        self._warn_of_unused(drafts, agents, references, state)
        on_error: OnError = config.value("on_error", OnError, "fail")
        max_steps = config.value("max_steps", Count, DEFAULT_MAX_STEPS)
        max_concurrency = config.value("max_concurrency", Count, DEFAULT_MAX_CONCURRENCY)
        env_requires = top.texts("env_requires", Variable)
        if self._problems.errors or start is None:
            return None
        return evolve(
            graph,
            start=start,
            nodes={name: draft.vertex for name, draft in drafts.items() if draft.vertex},
            max_steps=max_steps,
            max_concurrency=max_concurrency,
            on_error=on_error,
            state=state,
            env_requires=env_requires,
            permissions=permissions,
            hooks=hooks,
            input_schema=input_schema,
            state_schema=state_schema,
            uses_time=references.reads_time,
        )

    def _check_top(self) -> None:
        top = self._top
        if not isinstance(top.declared.get("permissions"), list):
            if "permissions" in top.declared:
                top.texts("permissions")
            if top.declared.get("permissions") is None:
                self._problems.error(
                    (), "permissions is missing: the list of what the graph's actions may do."
                )
        for name in top.declared:
            if name in _CONFIG_KEYS and name not in _BOUNDS:
                top.error(name, f"{quoted(name)} stands below 'config'.")
            elif name not in _TOP_KEYS and isinstance(name, str):
                guess = did_you_mean(name, _OWN_KEYS, at_least=0.8)
                if guess:
                    top.error(name, f"{quoted(name)} is not a key of a graph.{guess}")

    def _drafts(self, reader: NodeReader) -> dict[str, Draft]:
        config = self._config
        drafts: dict[str, Draft] = {}
        declared = config.mapping("nodes")
        if not declared and not isinstance(config.declared.get("nodes"), list | str | int | float):
            self._problems.error(
                config.at("nodes") if "nodes" in config.declared else config.place,
                "nodes is missing or empty: a graph has at least one node.",
            )
        for name, one in declared.items():
            node = config.inner(one, "nodes", name)
            if node is None:
                drafts[name] = Draft(id=name, type="action", place=config.at("nodes", name))
            else:
                drafts[name] = reader.read(name, node)
        return drafts

    def _hooks(self, owner: str) -> tuple[Hook, ...]:
        """Return the hooks; their owner keeps them within the graph's permissions."""
        config = self._config
        declared = config.declared.get("hooks")
        if declared is None:
            return ()
        try:
            return tuple(
                read_hooks(Configuration.of("", {"hooks": declared}), HookLayer.DIRECTIVE, owner)
            )
        except ConfigError as error:
            for one in cast("Sequence[ConfigProblem]", error.facts["problems"]):
                end = "" if one.message[-1] in ".?" else "."
                self._problems.error(
                    (*config.place, *one.place), f"{key_path(one.place)} {one.message}{end}"
                )
            return ()

    def _schema(self, fields: Fields, name: str) -> Mapping[str, object] | None:
        """Return a JSON Schema; None where it is absent or broken."""
        if not fields.has(name):
            return None
        schema = fields.mapping(name)
        try:
            SchemaValidator(json.dumps(schema))
        except (ValueError, TypeError) as problem:
            why = bounded(str(problem).rstrip("."), 200)
            fields.error(name, f"{name} is not a JSON Schema: {why}.")
            return None
        return schema

    def _check_state(
        self, state: Mapping[str, object], schema: Mapping[str, object] | None
    ) -> None:
        """Check the initial state, in which null stands for a later value."""
        for name in BUILT_IN:
            if name in state:
                self._config.problems.error(
                    self._config.at("state", name), f"{name} is built in, and can't be set."
                )
        if schema is None:
            return
        there = {name: value for name, value in state.items() if value is not None}
        lenient = {name: value for name, value in schema.items() if name != "required"}
        for failure in SchemaValidator(json.dumps(lenient)).failures(json.dumps(there)):
            key = next((name for name in there if failure.path.startswith(name)), None)
            place = self._config.at("state") if key is None else self._config.at("state", key)
            self._problems.error(
                place, f"The state doesn't fit state_schema: {failure.path}: {failure.message}"
            )

    def _warn_of_unused(
        self,
        drafts: Mapping[str, Draft],
        agents: Mapping[str, object],
        references: References,
        state: Mapping[str, object],
    ) -> None:
        used = {draft.agent_ref for draft in drafts.values()}
        for name in agents:
            if name not in used:
                self._problems.warn(
                    self._config.at("agents", name), f"No node runs the agent {quoted(name)}."
                )
        if references.reads_all:
            return
        for name in state:
            if name not in references.read and name not in BUILT_IN:
                self._problems.warn(self._config.at("state", name), f"Nothing reads state.{name}.")


def _check_keys_are_text(document: Mapping[str, object], problems: Problems) -> None:
    """Report keys that are not text, without recursion, each collection once."""
    to_look_at: list[tuple[Mapping[str, object] | list[object], Place]] = [(document, ())]
    seen: set[int] = set()
    while to_look_at:
        one, where = to_look_at.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for key, value in enumerate(one) if isinstance(one, list) else one.items():
            if isinstance(one, dict) and not isinstance(key, str):
                problems.error(where, f"The key {quoted(key)} is not text; write it in quotes.")
            elif isinstance(value, dict | list):  # as YAML makes them
                to_look_at.append((value, (*where, key)))
