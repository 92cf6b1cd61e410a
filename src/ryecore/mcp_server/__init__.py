"""The MCP server that offers ryecore's verbs to models elsewhere.

Needs the extra `mcp`. Nothing of it is imported before it is used.
"""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names
from ryecore.errors import MissingExtra

_EXTRA = frozenset({"mcp", "mcp_types", "pydantic", "starlette", "uvicorn"})

if TYPE_CHECKING:
    from ryecore.mcp_server.approvals import Approvals as Approvals
    from ryecore.mcp_server.http import serve_http as serve_http
    from ryecore.mcp_server.server import create_server as create_server
    from ryecore.mcp_server.stdio import serve_stdio as serve_stdio
else:
    _load, __dir__ = lazy_names(__name__)

    def __getattr__(name: str) -> object:
        try:
            return _load(name)
        except ModuleNotFoundError as problem:
            if (problem.name or "").partition(".")[0] not in _EXTRA:
                raise
            raise MissingExtra(
                f"The MCP server needs the package {problem.name}, which is not installed.",
                next_step="pip install 'ryecore[mcp]'",
                extra="mcp",
            ) from None
