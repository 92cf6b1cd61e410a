"""From a valid chain and parameters to an execution plan. Pure.

Source: seed 000, "Execution Config Building"; decisions 23 to 29.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from attrs import asdict, evolve, frozen

from ryecore.chain.model import (
    ChainElement,
    Deps,
    ExecutionPlan,
    ValidChain,
    WarmPlan,
    WarmTemplate,
)
from ryecore.chain.templating import Template, as_text, count_of
from ryecore.errors import ConfigError, InputError

__all__ = [
    "FORK_POINT",
    "PlanInputs",
    "Planner",
    "build_plan",
    "placeholder_names",
    "positive_number",
    "with_defaults",
]

DEFAULT_TIMEOUT_S: Final = 300.0
DEFAULT_MAX_OUTPUT_BYTES: Final = 16 * 1024 * 1024
RESERVED_PARAMETER: Final = "resolved_config"
FORK_POINT: Final = "fork_point"
"""The placeholder for the place at which a template forks; no parameter can be what it is."""

_MAX_NUMBER: Final = 2**53

_JSON: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)

_FORKS: Final = f"{{{FORK_POINT}}}"
_BOUNDS: Final = frozenset({"timeout", "max_output_bytes"})
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish"})
_SCRIPT_FLAG: Final = re.compile(r"-[A-Za-z]*c\Z")
_ONE_PLACEHOLDER: Final = re.compile(r"\s*(?:\{\w+\}|\$\{\w+\})\s*\Z")


@frozen
class PlanInputs:
    """What a plan is made from, apart from the chain.

    Attributes:
        parameters: The caller's, checked, with defaults.
        context: Values of placeholders that ryecore knows: paths of this run.
        env: The resolved environment.
        cwd: The working folder.
        resolved_config: What the tool's `config_resolve` found; None where it asks for nothing.
        timeout_s: The caller's or the configuration's; None leaves it to tool and runtime.
        default_timeout_s: What holds where nobody says anything.
        warm: What makes a template of the process; None where it starts cold.
    """

    parameters: Mapping[str, object]
    context: Mapping[str, object]
    env: Mapping[str, str]
    cwd: str
    resolved_config: object = None
    timeout_s: float | None = None
    default_timeout_s: float = DEFAULT_TIMEOUT_S
    warm: WarmTemplate | None = None


class Planner:
    """Makes the plans of one chain's executions, and what they have in common once.

    Args:
        chain: The chain.
        inputs: What else they are made from, without parameters.
        deps: Whether what the tool can import was verified.
    """

    __slots__ = ("_chain", "_common", "_deps", "_has_common", "_inputs", "_unknown")

    def __init__(self, chain: ValidChain, inputs: PlanInputs, deps: Deps) -> None:
        self._chain = chain
        self._inputs = inputs
        self._deps: Deps = deps
        self._unknown: set[str] = set()
        self._has_common = _takes_parameters_on_stdin_alone(chain)
        self._common: Callable[..., ExecutionPlan] | None = None

    def plan(
        self, parameters: Mapping[str, object], timeout_s: float | None, unknown: set[str]
    ) -> ExecutionPlan:
        """Make the plan of one execution, as `build_plan` does.

        Args:
            parameters: The caller's, checked, with defaults.
            timeout_s: The caller's or the configuration's; None leaves it to tool and runtime.
            unknown: Told the placeholders that nothing stands for.
        """
        if not self._has_common:
            inputs = evolve(self._inputs, parameters=parameters, timeout_s=timeout_s)
            return build_plan(self._chain, inputs, self._deps, unknown)
        if self._common is None:
            plan = build_plan(self._chain, self._inputs, self._deps, self._unknown)
            self._common = partial(ExecutionPlan, **asdict(plan, recurse=False))
        unknown |= self._unknown
        stdin = _to_json(parameters, self._inputs.resolved_config).encode()
        if timeout_s is None:
            return self._common(stdin=stdin)
        return self._common(stdin=stdin, timeout_s=timeout_s)


def _takes_parameters_on_stdin_alone(chain: ValidChain) -> bool:
    """Whether nothing but the standard input of its executions depends on their parameters."""
    config, bound = merge_configs(chain.elements)
    if chain.is_own_process or placeholder_names(chain.elements) & _named_in(chain.head):
        return False
    if config.get("input_data") != "{params_json}" or "params_json" in bound:
        return False
    signed = as_text([value for key, value in config.items() if key != "input_data"])
    return "{params_json}" not in signed and "{input_data}" not in signed


def build_plan(
    chain: ValidChain, inputs: PlanInputs, deps: Deps = "none", unknown: set[str] | None = None
) -> ExecutionPlan:
    """Make the plan of one execution.

    Args:
        chain: The chain.
        inputs: What else it is made from.
        deps: Whether what the tool can import was verified.
        unknown: Told the placeholders that nothing stands for.

    Returns:
        The plan, fully resolved.

    Raises:
        ConfigError: The merged configuration has no command, or one of another form.
        InputError: The parameters can't be written as JSON.
    """
    config, bound = merge_configs(chain.elements)
    taken = _placeholders_from_parameters(chain, inputs.parameters)
    parameters = _to_json(inputs.parameters, inputs.resolved_config)
    values: dict[str, object] = {
        **taken,
        **bound,
        **inputs.context,
        "params_json": parameters,
    }
    if chain.is_own_process:
        values["call_json"] = _call(chain, parameters)
    template = Template(
        inputs.env,
        values,
        config,
        unknown if unknown is not None else set(),
    )
    command = _command(config, template)
    args, warm = _args(config, taken.keys() | bound.keys(), command, template, inputs.warm)
    timeout_s = inputs.timeout_s
    if timeout_s is None:
        timeout_s = positive_number(config.get("timeout", inputs.default_timeout_s), "timeout")
    return ExecutionPlan(
        command=command,
        args=args,
        cwd=_text_of(config.get("cwd"), template) or inputs.cwd,
        env=inputs.env,
        stdin=_text_of(config.get("input_data"), template).encode(),
        timeout_s=timeout_s,
        max_output_bytes=int(
            positive_number(
                config.get("max_output_bytes", DEFAULT_MAX_OUTPUT_BYTES), "max_output_bytes"
            )
        ),
        deps=deps,
        keep=_text_of(config.get("keep_warm"), template) or None,
        warm=warm,
    )


def _text_of(value: object, template: Template) -> str:
    return template.text(value) if isinstance(value, str) else ""


def merge_configs(
    elements: Sequence[ChainElement],
) -> tuple[dict[str, object], dict[str, object]]:
    """Merge the elements' `config`, the tool's winning over its runtime's.

    A key that a runtime names in its own `config_schema` is no execution key in the elements
    before it: it sets that placeholder, for good (`{command}` of a shell tool, say). Before a
    process of ryecore's own, only bounds are execution keys.

    Returns:
        The merged execution configuration, and the placeholders that are set.
    """
    merged: dict[str, object] = {}
    bound: dict[str, object] = {}
    named: set[str] = set()
    is_own = False
    for element in reversed(elements):
        for key, value in element.spec.config.items():
            is_bound = key in named or (is_own and key not in _BOUNDS)
            (bound if is_bound else merged)[key] = value
        named |= _named_in(element)
        is_own = is_own or element.spec.own_process
    return merged, bound


def _named_in(element: ChainElement) -> frozenset[str]:
    properties = (element.spec.config_schema or {}).get("properties")
    return frozenset(properties) if isinstance(properties, Mapping) else frozenset()


def _placeholders_from_parameters(
    chain: ValidChain, parameters: Mapping[str, object]
) -> dict[str, object]:
    """The parameters that a runtime uses as placeholders, where the tool declares them too.

    A tool that doesn't declare `command` keeps it as a mere parameter: whoever may call a
    signed script can't make its runtime run another one.
    """
    names = placeholder_names(chain.elements) & _named_in(chain.head)
    return {name: parameters[name] for name in names if parameters.get(name) is not None}


def placeholder_names(elements: Sequence[ChainElement]) -> frozenset[str]:
    """The names that parameters can set as placeholders, where the tool declares them too."""
    # Without a tool before it, the runtime itself was called.
    return frozenset[str]().union(*map(_named_in, elements[1:] if len(elements) > 2 else elements))


def _command(config: Mapping[str, object], template: Template) -> str:
    command = config.get("command")
    if not isinstance(command, str):
        raise ConfigError(
            "The chain's configuration names no command.",
            next_step="Let the runtime's config hold one, such as command: /bin/bash.",
        )
    rendered = template.text(command)
    if not rendered or "\0" in rendered:
        raise ConfigError(
            f"The command {command!r} is empty once its variables are filled in.",
            next_step="See that the runtime's interpreter sets this variable.",
        )
    return rendered


def _args(
    config: Mapping[str, object],
    present: Collection[str],
    command: str,
    template: Template,
    warm: WarmTemplate | None,
) -> tuple[tuple[str, ...], WarmPlan | None]:
    args = config.get("args", [])
    alternatives = config.get("args_without")
    if isinstance(alternatives, Mapping):
        args = next((other for name, other in alternatives.items() if name not in present), args)
    if not isinstance(args, list):
        raise ConfigError(
            "The chain's configuration has args that are no list.", next_step="Write a list."
        )
    rendered: list[str] = []
    forks: list[tuple[int, str]] = []
    previous = ""
    for arg in args:
        text = as_text(arg)
        splices = (
            _SCRIPT_FLAG.match(previous) is not None
            and not _ONE_PLACEHOLDER.match(text)
            # `env bash -c` and `timeout 5 sh -c` run a shell too
            and any(word.rpartition("/")[2] in _SHELLS for word in (command, *rendered))
        )
        value = template.render(text, quote=splices)
        if warm is not None and _FORKS in text and count_of(FORK_POINT, text) == 1 and not splices:
            forks.append((len(rendered), text))
        rendered += (
            [as_text(part) for part in value] if isinstance(value, list) else [as_text(value)]
        )
        previous = text
    if any("\0" in arg for arg in rendered):
        raise InputError(
            "A parameter that becomes an argument holds a NUL, which no program can be given.",
            next_step="Leave it out.",
        )
    if warm is None or len(forks) != 1:  # a tool may bring arguments of its own
        return tuple(rendered), None
    index, text = forks[0]
    values = {**template.values, FORK_POINT: warm.fork_point}
    arg = Template(template.environ, values, template.config, template.unknown).text(text)
    return tuple(rendered), WarmPlan(index, arg, warm)


def _call(chain: ValidChain, parameters: str) -> str:
    """What a process of ryecore's own is called with: the tool as it was verified, parameters."""
    item = chain.head.item
    digest = "" if item is None else item.digest
    return f'{{"digest": "{digest}", "parameters": {parameters}}}'


def _to_json(parameters: Mapping[str, object], resolved_config: object) -> str:
    document = dict(parameters)
    if resolved_config is not None:
        document[RESERVED_PARAMETER] = resolved_config
    try:
        written = _JSON.encode(document)
        written.encode()  # half of a surrogate pair is no text
        return written
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"The parameters can't be written as JSON: {problem}.",
            next_step="Pass text, numbers, booleans, null, lists and mappings with text keys.",
        ) from None


def positive_number(value: object, name: str) -> float:
    """A bound that configuration sets.

    Raises:
        ConfigError: It is no number, or none that a process can have.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MAX_NUMBER:
        return float(value)
    raise ConfigError(
        f"The configuration has {name}: {value!r}.",
        next_step="Write a positive number, of at most 2^53.",
    )


def with_defaults(schema: Mapping[str, Any], parameters: Mapping[str, object]) -> dict[str, Any]:
    """The parameters, with the schema's defaults for what is absent; neither is changed."""
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
