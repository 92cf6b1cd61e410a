"""Validators that refuse a value of the wrong type at once, and not later in a run.

Their errors don't show the value, which may be a misplaced key.
"""

from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from typing import Any, TypeAlias

from ryecore.errors import ConfigError

__all__ = ["Check", "above", "at_least", "function", "of", "plain_function", "tuple_of_names"]

Check: TypeAlias = Callable[[object, Any, Any], None]


def of(what: str, *kinds: type) -> Check:
    """Return an attrs validator for values of some types, with None's own for an optional value."""

    def check(owner: object, attribute: Any, value: object) -> None:
        if not isinstance(value, kinds):
            raise _wrong(owner, attribute, value, what)

    return check


def at_least(least: int) -> Check:
    """Return an attrs validator for a number with a lower bound."""
    step = f"={least} or more"
    return _number(f"a number of at least {least}", step, lambda value: value >= least)


def above(bound: int) -> Check:
    """Return an attrs validator for a number above a bound."""
    what = f"a number above {bound}"
    return _number(what, f" as {what}", lambda value: value > bound)


def _number(what: str, step: str, is_allowed: Callable[[float], bool]) -> Check:
    def check(owner: object, attribute: Any, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(owner, attribute, value, what)
        if not is_allowed(value):  # so is NaN
            raise ConfigError(
                f"{type(owner).__name__}.{attribute.name} must be {what}, and is {value:g}.",
                next_step=f"Write {attribute.name}{step}.",
            )

    return check


def function(owner: object, attribute: Any, value: Any) -> None:
    """Validate with attrs that a value is callable; None is allowed only as the default."""
    if not callable(value) and (value is not None or attribute.default is not None):
        raise _wrong(owner, attribute, value, "a function")


def plain_function(owner: object, attribute: Any, value: Any) -> None:
    """Validate with attrs that a value is callable, and no coroutine function."""
    if not callable(value) or iscoroutinefunction(value):
        raise _wrong(owner, attribute, value, "a function that isn't async")


def tuple_of_names(declared: Iterable[str]) -> tuple[str, ...]:
    """Convert names with attrs: each once, in their order; a single text is refused."""
    if isinstance(declared, str) or not isinstance(declared, Iterable):
        raise ConfigError(
            f"A list of names is wanted, and this is {_named(declared)}.",
            next_step='Write it as a list, such as ["add"].',
        )
    names = tuple(dict.fromkeys(declared))
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(
                f"In a list of names, one is {_named(name)}.", next_step="Write names as texts."
            )
    return names


def _wrong(owner: object, attribute: Any, value: object, what: str) -> ConfigError:
    where = f"{type(owner).__name__}.{attribute.name}"
    return ConfigError(f"{where} is {_named(value)}.", next_step=f"It has to be {what}.")


def _named(value: object) -> str:
    return "None" if value is None else f"of the type {type(value).__name__}"
