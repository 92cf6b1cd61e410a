"""The public names are those that are there, and no others."""

import importlib
import pkgutil

from ryecore import lillux


def test_each_public_name_is_the_one_of_its_module() -> None:
    for name in lillux.__all__:
        home = importlib.import_module(f"ryecore.lillux.{lillux._HOMES[name]}")
        assert getattr(lillux, name) is getattr(home, name)
        assert name in home.__all__
    assert set(lillux._HOMES) == set(lillux.__all__)


def test_every_module_says_what_is_public() -> None:
    for module in pkgutil.iter_modules(lillux.__path__):
        names = importlib.import_module(f"ryecore.lillux.{module.name}")
        assert all(hasattr(names, name) for name in names.__all__)
