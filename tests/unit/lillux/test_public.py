"""Each module says what is public."""

import importlib
import pkgutil

from ryecore import lillux


def test_every_module_says_what_is_public() -> None:
    for module in pkgutil.iter_modules(lillux.__path__):
        names = importlib.import_module(f"ryecore.lillux.{module.name}")
        assert all(hasattr(names, name) for name in names.__all__)
