"""Lazy imports of public names."""

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module

__all__ = ["lazy_names", "read_homes"]


def read_homes(source: str) -> dict[str, str]:
    """Return a module's public names, each with the module that defines it.

    Each line `from HOME import NAME as NAME` of its source is one name.
    """
    homes: dict[str, str] = {}
    for line in source.splitlines():
        match line.split():
            case ["from", home, "import", name, "as", alias] if name == alias:
                homes[name] = home
    return homes


def lazy_names(module: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a module whose public names are imported lazily.

    The list of names is the module's block of imports for type checkers:

        if TYPE_CHECKING:
            from ryecore.rye import Rye as Rye
        else:
            __getattr__, __dir__ = lazy_names(__name__)

    That source is read when a name is first needed; `__all__` is made from it too.

    Args:
        module: The module's name.

    Returns:
        The two functions (PEP 562).
    """
    namespace = vars(sys.modules[module])

    @cache
    def homes() -> dict[str, str]:
        path = namespace["__file__"]
        try:
            with open(path, encoding="utf-8") as source:
                return read_homes(source.read())
        except (OSError, UnicodeDecodeError) as problem:
            raise ImportError(
                f"The public names of {module} are read from its source, and {path} can't be read "
                "as such. Install ryecore with its .py files."
            ) from problem

    def load(name: str) -> object:
        value: object
        if name == "__all__":
            value = sorted(homes())
        elif name in homes():
            value = getattr(import_module(homes()[name]), name)
        else:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        namespace[name] = value
        return value

    def names() -> list[str]:
        return sorted({*namespace, *homes()})

    return load, names
