"""How long ended threads are kept, from the signed `agent/retention.yaml`.

Source: decision 11; ADR 027.
"""

from typing import Final

from ryecore.chain.spec import ConfigSpec
from ryecore.chain.trace import Trace
from ryecore.errors import ConfigError
from ryecore.state.pruning import Retention, parse_age
from ryecore.threads.planner.planning import DirectivePlanner

__all__ = ["read_retention", "retention"]

_RETENTION: Final = ConfigSpec("agent/retention.yaml", signed=True)
_NAMES: Final = frozenset({"older_than", "keep", "include_resumable"})


def retention(planner: DirectivePlanner) -> Retention | None:
    """Return how long ended threads are kept; None where no file says so: all are kept.

    Raises:
        RyeError: The file can't be verified, read or used.
    """
    return read_retention(planner.config(_RETENTION, Trace()).get("threads"))


def read_retention(section: object) -> Retention | None:
    """Read the section `threads`; None where it names no age.

    Raises:
        ConfigError: A value can't be used.
    """
    if section is None:
        return None
    if not isinstance(section, dict):
        raise _misconfigured("threads must be a mapping")
    if unknown := sorted(map(str, set(section) - _NAMES)):
        raise _misconfigured(f"threads has the unknown key {unknown[0]!r}")
    if section.get("older_than") is None:
        return None
    keep, with_resumable = section.get("keep", 0), section.get("include_resumable", False)
    if type(keep) is not int or keep < 0:
        raise _misconfigured("threads.keep must be a whole number, 0 or more")
    if type(with_resumable) is not bool:
        raise _misconfigured("threads.include_resumable must be true or false")
    try:
        return Retention(parse_age(section["older_than"]), keep, with_resumable)
    except ConfigError as problem:
        raise _misconfigured(f"threads.older_than: {problem.message}") from None


def _misconfigured(what: str) -> ConfigError:
    return ConfigError(
        f"{_RETENTION.path}: {what}.".replace("..", "."),
        next_step="Write threads: {older_than: 30d, keep: 100}, and sign the file again.",
    )
