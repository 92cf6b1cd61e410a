"""The signed configuration of threads' loops, limits and retention. Pure.

Source: docs/design/threads.md#turn-loop; docs/design/threads.md#errors-of-models; decision 11;
ADR 027.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

from ryecore.agent.compaction import KEEP_TOKENS
from ryecore.convert.config import Check, Configuration, Reader, between
from ryecore.directives.model import PromptCache
from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.llm.rate_rules import RateLimit, check_rate_limits
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
_OPTIONAL_SHARE: Final = Check(
    "above 0 and up to 1, or null", lambda value: value is None or 0 < value <= 1
)


@frozen
class _Context:
    handoff_at: Annotated[float, _SHARE] = 0.9
    pressure_at: Annotated[float, _SHARE] = 0.8
    resume_ceiling_tokens: Annotated[int, between(0, 10**9)] = KEEP_TOKENS
    compact_at: Annotated[float | None, _OPTIONAL_SHARE] = None


@frozen
class _Loop:
    nudges: Annotated[int, between(0, 10**9)] = 2
    cache: PromptCache = "5m"


_Count = Annotated[int | None, between(1, 10**12)]


@frozen
class _RateLimit:
    requests_per_minute: _Count = None
    tokens_per_minute: _Count = None
    requests_at_once: _Count = None


@frozen
class _ResilienceFile:
    limits: Mapping[str, object] = {}
    context: _Context | None = None
    loop: _Loop | None = None
    rate_limits: Mapping[str, _RateLimit] = MappingProxyType({})


@frozen
class LoopConfig:
    """The configuration of a thread's loop.

    Attributes:
        handoff_at: The share of the model's context at which the thread is handed off, 0 to 1.
        pressure_at: The share at which hooks of `context_window_pressure` run, 0 to 1.
        resume_ceiling_tokens: The most tokens of the conversation that the next thread begins with.
        compact_at: The share at which a summary takes the place of the conversation's beginning;
            None for never, or as the host says.
        nudges: How often a model is reminded to use its tools, or to return its outputs.
        cache: The least time for which a provider should keep the conversation, where the
            directive says nothing of it.
        rate_limits: The rate limits of providers, for a host that sets none.
    """

    handoff_at: float = 0.9
    pressure_at: float = 0.8
    resume_ceiling_tokens: int = KEEP_TOKENS
    compact_at: float | None = None
    nudges: int = 2
    cache: PromptCache = "5m"
    rate_limits: Mapping[str, RateLimit] = MappingProxyType({})


def read_loop_config(config: Configuration) -> LoopConfig:
    """Read the sections `context`, `loop` and `rate_limits` of `agent/resilience.yaml`."""
    file = config.read(_ResilienceFile)
    context, loop = file.context or _Context(), file.loop or _Loop()
    return LoopConfig(
        context.handoff_at,
        context.pressure_at,
        context.resume_ceiling_tokens,
        context.compact_at,
        loop.nudges,
        loop.cache,
        _rate_limits(config, file.rate_limits),
    )


def _rate_limits(
    config: Configuration, section: Mapping[str, _RateLimit]
) -> Mapping[str, RateLimit]:
    limits: dict[str, RateLimit] = {}
    for name, one in section.items():
        try:
            limits[name] = RateLimit(
                one.requests_per_minute, one.tokens_per_minute, one.requests_at_once
            )
            check_rate_limits(limits)
        except ConfigError as problem:
            raise config.error([(("rate_limits", name), f"can't be used: {problem}")]) from None
    return limits


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
