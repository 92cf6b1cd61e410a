"""The risk classes of capabilities, and their acknowledgement. Pure.

`agent/capability_risk.yaml`, signed:

    patterns: {"rye.execute.tool.acme.deploy": unrestricted, "rye.execute.tool.acme.*": safe}

Source: decision 13; docs/design/threads.md#risk.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, get_args

from attrs import field

from ryecore.convert.config import Check, Configuration
from ryecore.convert.lines import quoted
from ryecore.directives.permissions import AcknowledgedRisk
from ryecore.errors import InputError
from ryecore.frozen import frozen
from ryecore.policy.permissions import allows

if TYPE_CHECKING:
    from ryecore.chain.trace import Trace

__all__ = [
    "DEFAULT_RISKS",
    "RISK_CLASSES",
    "RISK_CONFIG",
    "RiskClass",
    "RiskReport",
    "Risks",
    "check_risks",
    "judge",
    "read_risks",
    "risk_of",
]

RISK_CONFIG: Final = "agent/capability_risk.yaml"

RiskClass: TypeAlias = Literal["safe", "write", "elevated", "unrestricted"]
RISK_CLASSES: Final[tuple[RiskClass, ...]] = get_args(RiskClass)
"""The classes, from the harmless one to the one that is blocked unless acknowledged."""

Risks: TypeAlias = Mapping[str, RiskClass]

DEFAULT_RISKS: Final[Risks] = {
    "rye.*": "unrestricted",
    "rye.sign.*": "unrestricted",
    "rye.fetch.*": "safe",
    "rye.ask.*": "elevated",
    "rye.execute.*": "elevated",
    "rye.execute.directive.*": "write",
    "rye.execute.tool.*": "write",
    "rye.execute.tool.rye.*": "elevated",
    "rye.execute.tool.rye.file-system.*": "write",
    "rye.execute.tool.rye.file-system.glob": "safe",
    "rye.execute.tool.rye.file-system.grep": "safe",
    "rye.execute.tool.rye.file-system.list": "safe",
    "rye.execute.tool.rye.file-system.read": "safe",
    "rye.execute.tool.rye.file-system.tree": "safe",
}
"""The default risks, which the system bundle's file repeats."""


@frozen
class RiskReport:
    """The verdict on a thread's capabilities, with the class of each.

    `warnings` has a sentence for each granted one that needs acknowledgement and has none;
    `blocked` are unrestricted and not acknowledged, and so not granted.
    """

    allowed: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    classes: Mapping[str, RiskClass] = field(factory=dict)


def check_risks(report: RiskReport, log: "Trace") -> None:
    """Refuse a thread with unrestricted capabilities that its directive doesn't acknowledge."""
    if report.blocked:
        named = ", ".join(repr(one) for one in report.blocked)
        raise InputError(
            f"The directive asks for {named}: unrestricted, and not acknowledged.",
            next_step=(
                'Grant less in its <permissions>, or write <acknowledge risk="unrestricted">why'
                "</acknowledge> into them, and sign it again."
            ),
        )
    if report.warnings:
        log.add("risk", warnings=list(report.warnings))


def judge(
    capabilities: Iterable[str],
    acknowledged: Iterable[AcknowledgedRisk],
    risks: Risks = DEFAULT_RISKS,
) -> RiskReport:
    """Judge capabilities by their risk; an acknowledged class covers the ones below it.

    `safe` and `write` are granted; `elevated` too, with a warning unless it is acknowledged;
    `unrestricted` only where it is acknowledged.

    Source: docs/design/threads.md#risk.
    """
    said = {one.risk.strip().lower() for one in acknowledged}
    highest = max((rank for rank, name in enumerate(RISK_CLASSES) if name in said), default=-1)
    allowed: list[str] = []
    warnings: list[str] = []
    blocked: list[str] = []
    classes: dict[str, RiskClass] = {}
    for one in capabilities:
        risk = classes[one] = risk_of(one, risks)
        if RISK_CLASSES.index(risk) <= highest or risk in ("safe", "write"):
            allowed.append(one)
        elif risk == "elevated":
            allowed.append(one)
            warnings.append(
                f"The capability {quoted(one)} is of elevated risk, and not acknowledged."
            )
        else:
            blocked.append(one)
    return RiskReport(tuple(allowed), tuple(warnings), tuple(blocked), classes)


def risk_of(capability: str, risks: Risks = DEFAULT_RISKS) -> RiskClass:
    """Return the class of a capability, which may be a pattern itself.

    Of the patterns that cover the capability the most specific counts. A wildcard also grants
    everything within it, so its class is at least that of every pattern that overlaps it and is as
    specific. A capability that no pattern covers is unrestricted, and signing always is.
    """
    return _risk_of(capability, tuple(risks.items()))


@lru_cache(maxsize=4_096)  # every thread repeats the same look-ups
def _risk_of(capability: str, risks: tuple[tuple[str, RiskClass], ...]) -> RiskClass:
    if capability.startswith("rye.sign."):
        return "unrestricted"
    covering = [one for one, _ in risks if allows((one,), capability)]
    if not covering:
        return "unrestricted"
    ranks = {one: RISK_CLASSES.index(risk) for one, risk in risks}
    nearest = max(covering, key=lambda one: (_specificity(one), ranks[one]))
    found = [ranks[nearest]]
    if "*" in capability:
        bound = _specificity(nearest)
        found += [
            ranks[one] for one in ranks if _specificity(one) >= bound and _meet(one, capability)
        ]
    return RISK_CLASSES[max(found)]


@frozen
class _RiskFile:
    patterns: Mapping[
        Annotated[str, Check("a pattern that begins with 'rye.'", lambda one: one[:4] == "rye.")],
        RiskClass,
    ]


def read_risks(config: Configuration) -> Risks:
    """Read `agent/capability_risk.yaml`, merged; the defaults apply where no layer has it."""
    return config.read(_RiskFile).patterns if config.values else DEFAULT_RISKS


def _specificity(pattern: str) -> tuple[int, int]:
    return pattern.count("."), len(pattern.replace("*", ""))


def _meet(one: str, other: str) -> bool:
    """Return whether any text matches both of two patterns; `*` stands for any text."""
    # `reached` holds the positions in the other pattern after each character of this one.
    reached = _past_stars({0}, other)
    for character in one:
        if character == "*":
            reached = set(range(min(reached, default=len(other) + 1), len(other) + 1))
        else:
            stepped = {
                at if other[at] == "*" else at + 1
                for at in reached
                if at < len(other) and other[at] in ("*", character)
            }
            reached = _past_stars(stepped, other)
    return len(other) in reached


def _past_stars(reached: set[int], pattern: str) -> set[int]:
    """Return the positions, and those behind wildcards, which may match the empty text."""
    found = set(reached)
    for at, character in enumerate(pattern):
        if at in found and character == "*":
            found.add(at + 1)
    return found
