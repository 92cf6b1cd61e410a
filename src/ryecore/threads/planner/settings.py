"""The signed configuration of threads' loops, limits and retention. Pure.

Source: docs/design/threads.md#turn-loop; docs/design/threads.md#errors-of-models; decision 11;
ADR 027.
"""

from collections.abc import Mapping
from typing import Annotated, Final

from ryecore.convert.config import Check, Configuration, Reader, between
from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.policy.limits import Limits, read_limits
from ryecore.state.pruning import Retention, parse_age

__all__ = [
    "RESILIENCE_CONFIG",
    "RETENTION_CONFIG",
    "LoopConfig",
    "read_limits_section",
    "read_loop_config",
    "read_retention",
]

RESILIENCE_CONFIG: Final = "agent/resilience.yaml"
RETENTION_CONFIG: Final = "agent/retention.yaml"

_SHARE: Final = Check("above 0 and up to 1", lambda value: 0 < value <= 1)


@frozen
class _Context:
    handoff_at: Annotated[float, _SHARE] = 0.9
    pressure_at: Annotated[float, _SHARE] = 0.8
    resume_ceiling_tokens: Annotated[int, between(0, 10**9)] = 16_000


@frozen
class _Loop:
    nudges: Annotated[int, between(0, 10**9)] = 2


@frozen
class _ResilienceFile:
    limits: Mapping[str, object] = {}
    context: _Context | None = None
    loop: _Loop | None = None


@frozen
class LoopConfig:
    """The configuration of a thread's loop.

    Attributes:
        handoff_at: The share of the model's context at which the thread is handed off, 0 to 1.
        pressure_at: The share at which hooks of `context_window_pressure` run, 0 to 1.
        resume_ceiling_tokens: The most tokens of the conversation that the next thread begins with.
        nudges: How often a model is reminded to use its tools, or to return its outputs.
    """

    handoff_at: float = 0.9
    pressure_at: float = 0.8
    resume_ceiling_tokens: int = 16_000
    nudges: int = 2


def read_loop_config(config: Configuration) -> LoopConfig:
    """Read the sections `context` and `loop` of `agent/resilience.yaml`."""
    file = config.read(_ResilienceFile)
    context, loop = file.context or _Context(), file.loop or _Loop()
    return LoopConfig(
        context.handoff_at, context.pressure_at, context.resume_ceiling_tokens, loop.nudges
    )


def read_limits_section(config: Configuration) -> Limits:
    """Read the section `limits` of one layer of `agent/resilience.yaml`.

    Layers may spell a limit differently, as `turns` and `max_turns`.
    """
    try:
        return read_limits(config.read(_ResilienceFile).limits)
    except ValueError as problem:
        raise config.error([(("limits",), f"can't be used: {problem}")]) from None


def _read_age(value: object) -> float | None:
    try:
        return None if value is None else parse_age(value)
    except ConfigError as problem:
        raise ValueError(f"can't be used: {problem}") from None


@frozen
class _RetentionSection:
    older_than: Annotated[float | None, Reader(_read_age)] = None
    keep: Annotated[int, Check("0 or more", lambda value: value >= 0)] = 0
    include_resumable: bool = False


@frozen
class _RetentionFile:
    threads: _RetentionSection | None = None


def read_retention(config: Configuration) -> Retention | None:
    """Read `agent/retention.yaml`; None where it names no age, so that all threads are kept."""
    if not config.values:
        return None
    rule = config.read(_RetentionFile).threads
    if rule is None or rule.older_than is None:
        return None
    return Retention(rule.older_than, rule.keep, rule.include_resumable)
