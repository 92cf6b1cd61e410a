"""The MCP server that offers ryecore's verbs to models elsewhere.

Needs the extra `mcp`. Nothing of it is imported before it is used.
"""

from typing import TYPE_CHECKING

from ryecore._extras import lazy_names_of_extra

_EXTRA = frozenset({"httptools", "mcp", "mcp_types", "pydantic", "starlette", "uvicorn"})

if TYPE_CHECKING:
    from ryecore.mcp_server.approvals import Approvals as Approvals
    from ryecore.mcp_server.http import serve_http as serve_http
    from ryecore.mcp_server.server import create_server as create_server
    from ryecore.mcp_server.server import origins_of as origins_of
    from ryecore.mcp_server.stdio import serve_stdio as serve_stdio
else:
    __getattr__, __dir__ = lazy_names_of_extra(__name__, "mcp", _EXTRA, "The MCP server")
