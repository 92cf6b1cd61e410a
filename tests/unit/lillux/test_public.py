"""The public names are those that are there, and no others."""

import importlib
import pkgutil
from types import ModuleType

from ryecore import lillux


def test_all_is_what_is_there() -> None:
    public = {
        name
        for name, value in vars(lillux).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(lillux.__all__)
    assert len(lillux.__all__) == len(public)


def test_every_module_says_what_is_public() -> None:
    for module in pkgutil.iter_modules(lillux.__path__):
        names = importlib.import_module(f"ryecore.lillux.{module.name}")
        assert all(hasattr(names, name) for name in names.__all__)
