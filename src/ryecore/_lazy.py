"""Public names that are imported when they are first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, str], *, below: str = ""
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package whose names live in its modules.

    Args:
        package: The package's name.
        homes: Each public name and the module that defines it.
        below: The package that the modules are below; empty for this one.

    Returns:
        The two functions (PEP 562).
    """
    namespace = vars(sys.modules[package])
    root = below or package

    def load(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{root}.{home}"), name)
        namespace[name] = value
        return value

    def names() -> list[str]:
        return sorted({*namespace, *homes})

    return load, names
