"""The official SDK, imported without its server: only by the connector's process."""

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from typing import Any, Final

__all__ = ["import_client"]

_PACKAGES: Final = ("mcp", "mcp.client")
_NEEDED: Final = ("mcp.client.session",)  # its transports over HTTP are imported by `http`


def import_client() -> None:
    """Import the SDK's client without the other imports of its packages.

    For ryecore's own processes: `mcp` and `mcp.client` hold nothing but submodules there. Where the
    SDK's modules need more, or it isn't installed, all imports are undone, and a later import of
    the SDK imports all of it.
    """
    if "mcp" in sys.modules:
        return
    gc.disable()  # modules stay in memory
    try:
        for name in _PACKAGES:
            _enter(name)
        with _models_built_when_used():
            for name in _NEEDED:
                importlib.import_module(name)
    except ImportError:
        for name in tuple(sys.modules):
            if name.partition(".")[0] == "mcp":
                del sys.modules[name]
    finally:
        gc.enable()
    gc.freeze()


@contextmanager
def _models_built_when_used() -> Iterator[None]:
    """Defer building the validators of the SDK's 500 models, of which a call uses a few."""
    from pydantic import BaseModel, TypeAdapter  # noqa: PLC0415 - installed with the SDK

    config = BaseModel.model_config  # which its subclasses copy
    config["defer_build"] = True
    # A union has no config. Where pydantic calls this otherwise, unions are built at once.
    adapter: Any = TypeAdapter
    before = vars(adapter).get("_defer_build")
    adapter._defer_build = True
    try:
        yield
    finally:
        del config["defer_build"]
        if before is None:
            del adapter._defer_build
        else:
            adapter._defer_build = before


def _enter(name: str) -> None:
    """Enter a package in `sys.modules` without running it, so that its modules can be imported."""
    spec = find_spec(name)
    if spec is None:
        raise ImportError(name)
    sys.modules[name] = package = module_from_spec(spec)
    above, _, last = name.rpartition(".")
    if above:
        setattr(sys.modules[above], last, package)
