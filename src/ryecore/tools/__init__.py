"""Tools for models: their definitions, who may call them, and how a call is served."""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if TYPE_CHECKING:
    from ryecore.tools.context import ApproveToolCall as ApproveToolCall
    from ryecore.tools.context import Denied as Denied
    from ryecore.tools.context import FsScope as FsScope
    from ryecore.tools.context import ToolApprovalRequest as ToolApprovalRequest
    from ryecore.tools.context import ToolContext as ToolContext
    from ryecore.tools.context import ToolLimits as ToolLimits
    from ryecore.tools.definition import FunctionTool as FunctionTool
    from ryecore.tools.definition import ToolDef as ToolDef
    from ryecore.tools.definition import ToolFunction as ToolFunction
    from ryecore.tools.definition import ToolOptions as ToolOptions
    from ryecore.tools.definition import tool as tool
    from ryecore.tools.items import ItemExecutor as ItemExecutor
    from ryecore.tools.policy import ToolPolicy as ToolPolicy
    from ryecore.tools.reading import read_result_tool as read_result_tool
    from ryecore.tools.registry import ToolRegistry as ToolRegistry
    from ryecore.tools.results import OnToolEvent as OnToolEvent
    from ryecore.tools.results import ToolCalled as ToolCalled
    from ryecore.tools.results import ToolOutcome as ToolOutcome
    from ryecore.tools.results import ToolReturned as ToolReturned
    from ryecore.tools.store import FolderResultStore as FolderResultStore
    from ryecore.tools.store import MemoryResultStore as MemoryResultStore
    from ryecore.tools.store import ObjectResultStore as ObjectResultStore
    from ryecore.tools.store import ResultStore as ResultStore
else:
    __getattr__, __dir__ = lazy_names(__name__)
