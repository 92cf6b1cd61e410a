"""The node: a server that runs signed projects for the callers that its operator allows.

Its application needs the extra `server`. Nothing of it is imported before it is used.
"""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names
from ryecore.errors import MissingExtra

_EXTRA = frozenset({"starlette", "uvicorn"})

if TYPE_CHECKING:
    from ryecore.node.app import create_node_app as create_node_app
    from ryecore.node.callers import Caller as Caller
    from ryecore.node.callers import Callers as Callers
    from ryecore.node.identity import NodeIdentity as NodeIdentity
    from ryecore.node.identity import load_node as load_node
    from ryecore.node.identity import make_node as make_node
    from ryecore.node.serve import serve_node as serve_node
else:
    _load, __dir__ = lazy_names(__name__)

    def __getattr__(name: str) -> object:
        try:
            return _load(name)
        except ModuleNotFoundError as problem:
            if (problem.name or "").partition(".")[0] not in _EXTRA:
                raise
            raise MissingExtra(
                f"A node needs the package {problem.name}, which is not installed.",
                next_step="pip install 'ryecore[server]'",
                extra="server",
            ) from None
