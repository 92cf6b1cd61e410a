"""From a valid chain and checked parameters to an execution plan. Pure.

Source: docs/design/chain.md#the-plan; decisions 23 to 29.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, Final, cast

from attrs import asdict, evolve

from ryecore.chain.arguments import FORK_POINT, SignedLine, Values, read_line, read_stdin
from ryecore.chain.elements import ChainElement
from ryecore.chain.model import (
    Chain,
    Deps,
    ExecutionPlan,
    ValidChain,
    WarmPlan,
    WarmTemplate,
)
from ryecore.chain.templating import ConfigTemplate, as_text
from ryecore.convert.lines import quoted
from ryecore.errors import ConfigError, InputError, InvalidParameters
from ryecore.frozen import frozen
from ryecore.lillux.schema import SchemaValidator

__all__ = [
    "PlanInputs",
    "Planner",
    "build_plan",
    "check_pinned",
    "check_programs",
    "checked_parameters",
    "placeholder_names",
    "positive_number",
    "with_defaults",
]

DEFAULT_TIMEOUT_S: Final = 300.0
DEFAULT_MAX_OUTPUT_BYTES: Final = 16 * 1024 * 1024
RESERVED_PARAMETER: Final = "resolved_config"
_MAX_NUMBER: Final = 2**53

_JSON: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)

_BOUNDS: Final = frozenset({"timeout", "max_output_bytes"})
_EXECUTION_KEYS: Final = frozenset({"args", "args_without", "command", "script_args"})
"""Keys of the command line itself, which are never the value of a placeholder."""

_DECLARATIONS: Final = frozenset({".yaml", ".yml", ".toml", ".json"})
"""The extensions of files that declare a tool and are not programs."""


@frozen
class PlanInputs:
    """What a plan is made from, apart from the chain; without `warm` it starts cold."""

    parameters: Mapping[str, object]
    context: Mapping[str, object]
    env: Mapping[str, str]
    cwd: str
    resolved_config: object = None
    timeout_s: float | None = None
    default_timeout_s: float = DEFAULT_TIMEOUT_S
    warm: WarmTemplate | None = None


class Planner:
    """Makes the plans of one chain's executions, and what they have in common once."""

    __slots__ = ("_chain", "_common", "_deps", "_has_common", "_inputs", "_unknown")

    def __init__(self, chain: ValidChain, inputs: PlanInputs, deps: Deps) -> None:
        self._chain = chain
        self._inputs = inputs
        self._deps: Deps = deps
        self._unknown: set[str] = set()
        self._has_common = _takes_parameters_on_stdin_alone(chain)
        self._common: Callable[..., ExecutionPlan] | None = None

    def check(self) -> None:
        """Check that no value would become part of a program, as `check_programs` does."""
        check_programs(self._chain, self._inputs)

    def plan(
        self,
        parameters: Mapping[str, object],
        timeout_s: float | None,
        unknown: set[str],
        call_env: Mapping[str, str],
    ) -> ExecutionPlan:
        """Make the plan of one execution, as `build_plan` does."""
        if not self._has_common:
            inputs = evolve(self._inputs, parameters=parameters, timeout_s=timeout_s)
            plan = build_plan(self._chain, inputs, self._deps, unknown)
            return evolve(plan, call_env=call_env)
        if self._common is None:
            plan = build_plan(self._chain, self._inputs, self._deps, self._unknown)
            common = asdict(plan, recurse=False)
            del common["call_env"]
            self._common = partial(ExecutionPlan, **common)
        unknown |= self._unknown
        stdin = _to_json(parameters, self._inputs.resolved_config).encode()
        if timeout_s is None:
            return self._common(stdin=stdin, call_env=call_env)
        return self._common(stdin=stdin, timeout_s=timeout_s, call_env=call_env)


def check_pinned(chain: Chain, *, is_for_model: bool) -> None:
    """Check that a model is offered what was pinned, and nothing that can change behind its name.

    Raises:
        InputError: It isn't pinned, where its runtime asks for it.
    """
    if not is_for_model or chain.is_pinned is not False:
        return
    spec, head = chain.pinned_by, chain.head
    raise InputError(
        f"'{head.item_id}' is not pinned, so it is not run on behalf of a model.",
        next_step=ConfigTemplate({}, head.spec.config).text(spec.next_step if spec else ""),
    )


def _takes_parameters_on_stdin_alone(chain: ValidChain) -> bool:
    """Return whether parameters change only the standard input of its executions."""
    config, bound = merge_configs(chain.elements)
    if chain.is_own_process or placeholder_names(chain.elements) & _named_in(chain.head):
        return False
    if "script_args" in chain.head.spec.config:
        return False
    if config.get("input_data") != "{params_json}" or "params_json" in bound:
        return False
    signed = as_text([value for key, value in config.items() if key != "input_data"])
    return "{params_json}" not in signed and "{input_data}" not in signed


def build_plan(
    chain: ValidChain, inputs: PlanInputs, deps: Deps = "none", unknown: set[str] | None = None
) -> ExecutionPlan:
    """Make the plan of one execution, and collect unknown placeholders outside the command line."""
    config, bound = merge_configs(chain.elements)
    parameters = _to_json(inputs.parameters, inputs.resolved_config)
    payload: dict[str, object] = {"params_json": parameters}
    if chain.is_own_process:
        payload["call_json"] = _call(chain, parameters)
    values = _values(chain, config, bound, inputs, payload)
    line = _line(config, _args(config, values.parameters.keys() | bound.keys()), chain, values)
    _check_runs_a_program(line, chain)
    read_stdin(_text_of(config, "input_data"), line, values)
    command, filled = line.fill(values)
    if not command or "\0" in command:
        raise ConfigError(
            f"The command {quoted(config['command'])} is empty once its variables are filled in.",
            next_step="See that the runtime's interpreter sets this variable.",
        )
    args = tuple(word for words in filled for word in words)
    if any("\0" in arg for arg in args):
        raise InputError(
            "A parameter that becomes an argument holds a NUL, which can't be passed to a program.",
            next_step="Leave it out.",
        )
    template = values.template(unknown if unknown is not None else set())
    timeout_s = inputs.timeout_s
    if timeout_s is None:
        timeout_s = positive_number(config.get("timeout", inputs.default_timeout_s), "timeout")
    return ExecutionPlan(
        command=command,
        args=args,
        cwd=template.text(_text_of(config, "cwd")) or inputs.cwd,
        env=inputs.env,
        stdin=template.text(_text_of(config, "input_data")).encode(),
        timeout_s=timeout_s,
        max_output_bytes=int(
            positive_number(
                config.get("max_output_bytes", DEFAULT_MAX_OUTPUT_BYTES), "max_output_bytes"
            )
        ),
        deps=deps,
        keep=template.text(_text_of(config, "keep_warm")) or None,
        warm=_warm_plan(line, values, filled, inputs.warm),
    )


def check_programs(chain: ValidChain, inputs: PlanInputs) -> None:
    """Check that no value would become part of a program, before there are any parameters."""
    config, bound = merge_configs(chain.elements)
    if "command" not in config:  # such as the item of an MCP server; a plan needs one
        return
    values = _values(chain, config, bound, inputs, {})
    for args in (config.get("args", []), *_alternatives(config).values()):
        line = _line(config, args, chain, values)
        read_stdin(_text_of(config, "input_data"), line, values)


def _values(
    chain: ValidChain,
    config: Mapping[str, object],
    bound: Mapping[str, object],
    inputs: PlanInputs,
    payload: Mapping[str, object],
) -> Values:
    declared, of_tool = placeholder_names(chain.elements), _named_in(chain.head)
    passed = {name: one for name, one in inputs.parameters.items() if one is not None}
    return Values(
        environ=inputs.env,
        context=inputs.context,
        bound=bound,
        config={key: one for key, one in config.items() if key not in _EXECUTION_KEYS},
        # For a tool that doesn't declare `command` it is a plain parameter: the caller of a signed
        # script can't make its runtime run another one.
        parameters={name: passed[name] for name in declared & of_tool & passed.keys()},
        declared=declared,
        of_tool=of_tool,
        own={name: passed[name] for name in of_tool & passed.keys()},
        payload=payload,
    )


def _text_of(config: Mapping[str, object], key: str) -> str:
    value = config.get(key)
    return value if isinstance(value, str) else ""


def _alternatives(config: Mapping[str, object]) -> Mapping[str, object]:
    alternatives = config.get("args_without")
    return alternatives if isinstance(alternatives, Mapping) else {}


def _args(config: Mapping[str, object], present: Collection[str]) -> object:
    """Return the arguments for the placeholders that have a value."""
    others = _alternatives(config).items()
    return next((args for name, args in others if name not in present), config.get("args", []))


def _line(
    config: Mapping[str, object], args: object, chain: ValidChain, values: Values
) -> SignedLine:
    """Read the signed command line with these arguments."""
    command, script_args = config.get("command"), chain.head.spec.config.get("script_args", [])
    if not isinstance(command, str):
        raise ConfigError(
            "The chain's configuration names no command.",
            next_step="Let the runtime's config hold one, such as command: /bin/bash.",
        )
    for name, value in (("args", args), ("script_args", script_args)):
        if not isinstance(value, list):
            raise ConfigError(
                f"The chain's configuration has {name} that are not a list.",
                next_step="Write a list.",
            )
    more = [] if chain.is_own_process else cast("list[object]", script_args)
    return read_line(command, cast("list[object]", args), more, values)


def _check_runs_a_program(line: SignedLine, chain: ValidChain) -> None:
    """Refuse to run a declaration as a program, as a shell tool in YAML without a command."""
    program, path = line.names_file("tool_path"), chain.head.path
    if program is None or path is None or PurePath(path).suffix not in _DECLARATIONS:
        return
    raise ConfigError(
        f"{path} declares a tool, and {program.interpreter} would run it as a program.",
        next_step="Write what it runs into its config, as in config: {command: ...} for a tool of "
        "the bash runtime, or make the tool a program with a header in its comments.",
        path=path,
    )


def _warm_plan(
    line: SignedLine,
    values: Values,
    filled: Sequence[tuple[str, ...]],
    warm: WarmTemplate | None,
) -> WarmPlan | None:
    forks = line.forks()
    if warm is None or len(forks) != 1:  # a tool may bring arguments of its own
        return None
    index = forks[0]
    _, forked = line.fill(evolve(values, context={**values.context, FORK_POINT: warm.fork_point}))
    return WarmPlan(sum(map(len, filled[:index])), forked[index][0], warm)


def merge_configs(
    elements: Sequence[ChainElement],
) -> tuple[dict[str, object], dict[str, object]]:
    """Merge the elements' `config` into one, the tool's winning, and the placeholders that are set.

    A key that a runtime names in its own `config_schema` isn't an execution key in the elements
    before it: it sets that placeholder, for good (`{command}` of a shell tool, say). Before a
    process of ryecore's own, only bounds are execution keys.
    """
    merged: dict[str, object] = {}
    bound: dict[str, object] = {}
    named: set[str] = set()
    is_own = False
    for element in reversed(elements):
        for key, value in element.spec.config.items():
            is_bound = key in named or (is_own and key not in _BOUNDS)
            if not is_bound:
                merged[key] = value
            elif value is not None:
                bound[key] = value
        named |= _named_in(element)
        is_own = is_own or element.spec.own_process
    return merged, bound


def _named_in(element: ChainElement) -> frozenset[str]:
    properties = (element.spec.config_schema or {}).get("properties")
    return frozenset(properties) if isinstance(properties, Mapping) else frozenset()


def placeholder_names(elements: Sequence[ChainElement]) -> frozenset[str]:
    """Return the placeholders that parameters can set, where the tool declares them too."""
    # Without a tool before it, the runtime itself was called.
    return frozenset[str]().union(*map(_named_in, elements[1:] if len(elements) > 2 else elements))


def _call(chain: ValidChain, parameters: str) -> str:
    """Return the call of a ryecore process: the tool as it was verified, and parameters."""
    item = chain.head.item
    digest = "" if item is None else item.digest
    return f'{{"digest": "{digest}", "parameters": {parameters}}}'


def _to_json(parameters: Mapping[str, object], resolved_config: object) -> str:
    document = dict(parameters)
    if resolved_config is not None:
        document[RESERVED_PARAMETER] = resolved_config
    try:
        written = _JSON.encode(document)
        written.encode()  # half of a surrogate pair is not text
        return written
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"The parameters can't be written as JSON: {problem}.",
            next_step="Pass text, numbers, booleans, null, lists and mappings with text keys.",
        ) from None


def positive_number(value: object, name: str) -> float:
    """Return a bound that configuration sets."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MAX_NUMBER:
        return float(value)
    raise ConfigError(
        f"The configuration has {name}: {quoted(value)}.",
        next_step="Write a positive number, of at most 2^53.",
    )


def with_defaults(schema: Mapping[str, Any], parameters: Mapping[str, object]) -> dict[str, Any]:
    """Return the parameters, with the schema's defaults for what is absent; neither is changed."""
    filled = dict(parameters)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return filled
    for name, part in properties.items():
        if not isinstance(part, Mapping):
            continue
        if name not in filled and "default" in part:
            filled[name] = part["default"]
        inner = filled.get(name)
        if isinstance(inner, Mapping):
            filled[name] = with_defaults(part, inner)
    return filled


async def checked_parameters(
    item_id: str,
    schema: Mapping[str, Any] | None,
    validator: SchemaValidator | None,
    parameters: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return the parameters with the schema's defaults; else refuse them with every failing path.

    They must also be JSON, and take no reserved name.
    """
    if RESERVED_PARAMETER in parameters:
        raise InputError(
            f"The parameter '{RESERVED_PARAMETER}' is reserved for signed configuration.",
            next_step="Leave it out.",
        )
    if validator is None or schema is None:
        return parameters
    filled = with_defaults(schema, parameters)
    try:
        failures = await validator.failures_async(json.dumps(filled, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"The parameters can't be written as JSON: {problem}.",
            next_step="Pass text, numbers, booleans, null, lists and mappings with text keys.",
        ) from None
    if not failures:
        return filled
    listed = tuple(map(str, failures))
    raise InvalidParameters(
        f"The parameters don't fit {item_id}: {'; '.join(listed)}.",
        next_step=f"Its schema: {_known_parameters(schema)}."
        + _unknown_parameters(schema, parameters),
        failures=listed,
    )


def _unknown_parameters(schema: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """Name the parameters that an open schema allows without knowing them: misspelt, perhaps."""
    known = schema.get("properties", {})
    unknown = [name for name in parameters if name not in known]
    if not unknown or schema.get("additionalProperties") is False or "patternProperties" in schema:
        return ""
    return f" It doesn't name {', '.join(map(repr, unknown))}."


def _known_parameters(schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    names = [
        f"{name} ({part.get('type', 'any') if isinstance(part, Mapping) else 'any'}"
        + (", required)" if name in required else ")")
        for name, part in schema.get("properties", {}).items()
    ]
    return ", ".join(names) or "no parameters"
