"""How a thread's loop behaves, from the signed `agent/resilience.yaml`.

Source: docs/design/threads.md#turn-loop; docs/design/threads.md#errors-of-models.
"""

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from ryecore.chain.spec import ConfigSpec
from ryecore.chain.trace import Trace
from ryecore.errors import ConfigError
from ryecore.threads.planner.planning import DirectivePlanner

__all__ = ["LoopConfig", "loop_config", "read_loop_config"]

_RESILIENCE: Final = ConfigSpec("agent/resilience.yaml", signed=True)


@frozen
class LoopConfig:
    """How a thread's loop behaves.

    Attributes:
        handoff_at: How full the model's context is when another thread goes on, 0 to 1.
        pressure_at: How full it is when hooks of `context_window_pressure` are asked, 0 to 1.
        resume_ceiling_tokens: How much of a conversation the next thread begins with.
        nudges: How often a model is told to use its tools, or to hand over its outputs.
    """

    handoff_at: float = 0.9
    pressure_at: float = 0.8
    resume_ceiling_tokens: int = 16_000
    nudges: int = 2


def loop_config(planner: DirectivePlanner, log: Trace | None = None) -> LoopConfig:
    """How loops behave in this project.

    Raises:
        RyeError: The file can't be verified, read or used.
    """
    return read_loop_config(planner.config(_RESILIENCE, log or Trace()))


def read_loop_config(config: Mapping[str, Any]) -> LoopConfig:
    """Read the sections `context` and `loop`.

    Raises:
        ConfigError: A value can't be meant.
    """
    default = LoopConfig()
    context, loop = _section(config, "context"), _section(config, "loop")
    return LoopConfig(
        _share(context, "handoff_at", default.handoff_at),
        _share(context, "pressure_at", default.pressure_at),
        _count(context, "resume_ceiling_tokens", default.resume_ceiling_tokens),
        _count(loop, "nudges", default.nudges),
    )


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name) or {}
    if not isinstance(section, Mapping):
        raise _misconfigured(name, "no mapping")
    return section


def _share(section: Mapping[str, Any], name: str, default: float) -> float:
    value = section.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise _misconfigured(name, "no number above 0 and up to 1")
    return float(value)


def _count(section: Mapping[str, Any], name: str, default: int) -> int:
    value = section.get(name, default)
    if type(value) is not int or not 0 <= value <= 10**9:
        raise _misconfigured(name, "no whole number from 0")
    return value


def _misconfigured(name: str, what: str) -> ConfigError:
    return ConfigError(
        f"{_RESILIENCE.path}, {name}: it is {what}.", next_step="Mend the file and sign it again."
    )
