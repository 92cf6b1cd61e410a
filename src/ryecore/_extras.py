"""Lazy imports of the public names of rooms that need an extra."""

from collections.abc import Callable, Collection

from ryecore._lazy import lazy_names
from ryecore.errors import MissingExtra

__all__ = ["lazy_names_of_extra"]


def lazy_names_of_extra(
    module: str, extra: str, packages: Collection[str], what: str
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a module whose names need an extra.

    Without it, they are a MissingExtra.

    Args:
        module: The module's name.
        extra: The extra.
        packages: The top-level packages that it installs.
        what: What needs them, as the beginning of a sentence.

    Returns:
        The two functions (PEP 562).
    """
    load, names = lazy_names(module)

    def load_of_extra(name: str) -> object:
        try:
            return load(name)
        except ModuleNotFoundError as problem:
            if (problem.name or "").partition(".")[0] not in packages:
                raise
            raise MissingExtra(
                f"{what} needs the package {problem.name}, which is not installed.",
                next_step=f"pip install 'ryecore[{extra}]'",
                extra=extra,
            ) from None

    return load_of_extra, names
