"""A limit that a thread or a run has met.

Source: docs/design/threads.md#turn-loop; decision 40.
"""

from typing import Final, Literal, Self, TypeAlias

from attrs import frozen

from ryecore.convert.money import write_usd

__all__ = ["LimitCode", "LimitHit"]

LimitCode: TypeAlias = Literal[
    "turns_exceeded",
    "tokens_exceeded",
    "spend_exceeded",
    "duration_exceeded",
    "spawns_exceeded",
    "depth_exceeded",
]
"""The name of a limit that can be met."""

_OPTIONS: Final = {"duration": "duration_seconds"}
"""The option that sets a limit, by the limit's code, where the two names differ."""


@frozen
class LimitHit:
    """A limit that was met.

    Attributes:
        code: The name of the limit.
        current: How much was used: turns, tokens, US dollars, or seconds.
        maximum: The limit, in the same unit.
        reason: An explanation; empty where code and numbers suffice.
        next_step: The next step; empty for a higher limit of the same kind.
    """

    code: LimitCode
    current: float
    maximum: float
    reason: str = ""
    next_step: str = ""

    @classmethod
    def of_spend(
        cls, used_microcents: int, most_microcents: int, reason: str = "", next_step: str = ""
    ) -> Self:
        """Return a hit of the spending limit."""
        used, most = write_usd(used_microcents), write_usd(most_microcents)
        return cls("spend_exceeded", used, most, reason, next_step)

    @property
    def message(self) -> str:
        """What happened, and the next step, for people and models."""
        what = self.code.removesuffix("_exceeded")
        met = f"The limit of {what} is met: {_number(self.current)} of {_number(self.maximum)}."
        more = f"Start or resume it with a higher one: --limit {_OPTIONS.get(what, what)}=..."
        return f"{self.reason or met} {self.next_step or more}"

    def to_dict(self) -> dict[str, object]:
        """Return the hit under the names that hooks and transcripts use."""
        return {
            "limit_code": self.code,
            "current_value": self.current,
            "current_max": self.maximum,
        }


def _number(value: float) -> str:
    return f"{value:,.6f}".rstrip("0").rstrip(".")
