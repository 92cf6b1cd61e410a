"""Items of the system bundle that ryecore serves itself, where threads run."""

from typing import Final

__all__ = ["ORCHESTRATOR"]

ORCHESTRATOR: Final = "rye/agent/threads/orchestrator"
"""The tool that looks after threads; see `threads.orchestrator`."""
