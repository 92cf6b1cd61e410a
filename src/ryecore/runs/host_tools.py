"""The host's functions, as threads and graph runs may call them.

Source: decision 41. Nothing is exempt.
"""

from typing import Final

from attrs import evolve

from ryecore.tools.definition import ToolDef

__all__ = ["HOST_CAPABILITY", "guarded"]

HOST_CAPABILITY: Final = "rye.execute.tool.host."
"""What a host's function needs that names no capability itself: this and its name."""


def guarded(tool: ToolDef) -> ToolDef:
    """The tool, with the capability that it needs."""
    if tool.capability is not None:
        return tool
    return evolve(tool, capability=f"{HOST_CAPABILITY}{tool.name}")
