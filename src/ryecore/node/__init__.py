"""The node: a server that runs signed projects for the callers that its operator allows.

Its application needs the extra `server`. Nothing of it is imported before it is used.
"""

from typing import TYPE_CHECKING

from ryecore._extras import lazy_names_of_extra

_EXTRA = frozenset({"httptools", "starlette", "uvicorn"})

if TYPE_CHECKING:
    from ryecore.node.app import create_node_app as create_node_app
    from ryecore.node.callers import Caller as Caller
    from ryecore.node.callers import Callers as Callers
    from ryecore.node.identity import NodeIdentity as NodeIdentity
    from ryecore.node.identity import load_node as load_node
    from ryecore.node.identity import make_node as make_node
    from ryecore.node.serve import serve_node as serve_node
else:
    __getattr__, __dir__ = lazy_names_of_extra(__name__, "server", _EXTRA, "A node")
