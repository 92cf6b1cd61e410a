"""ryecore: run AI agents you can trust.

Tools, runtimes, directives and graphs are files under `.ai/`, each signed with Ed25519 and
verified before every use. What runs is exactly what was verified.

    from ryecore import SyncRye

    with SyncRye.open(".") as rye:
        print(rye.execute("tool:rye/bash", {"command": "echo hello"}))
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if sys.platform != "linux":
    raise ImportError(
        f"ryecore runs on Linux (x86-64, arm64); this is {sys.platform}. "
        "On Windows, run it inside WSL."
    )

try:
    import_module("ryecore._native")
except ModuleNotFoundError as problem:
    if problem.name != "ryecore._native":
        raise
    raise ImportError(
        "ryecore's native extension is not built. In a checkout: make build. "
        "Otherwise: pip install --force-reinstall ryecore"
    ) from None

if TYPE_CHECKING:
    from ryecore.calls import rye_execute as rye_execute
    from ryecore.calls import rye_fetch as rye_fetch
    from ryecore.calls import rye_sign as rye_sign
    from ryecore.chain.builder import MAX_CHAIN_DEPTH as MAX_CHAIN_DEPTH
    from ryecore.chain.environment import EnvResolver as EnvResolver
    from ryecore.chain.executor import PrimitiveExecutor as PrimitiveExecutor
    from ryecore.chain.model import Chain as Chain
    from ryecore.chain.model import ChainElement as ChainElement
    from ryecore.chain.model import ExecutionPlan as ExecutionPlan
    from ryecore.chain.model import ExecutionResult as ExecutionResult
    from ryecore.chain.primitives import PRIMITIVE_MAP as PRIMITIVE_MAP
    from ryecore.chain.primitives import ExecutePrimitive as ExecutePrimitive
    from ryecore.chain.validator import ChainValidator as ChainValidator
    from ryecore.errors import IntegrityError as IntegrityError
    from ryecore.errors import ItemNotFound as ItemNotFound
    from ryecore.errors import RyeError as RyeError
    from ryecore.errors import ToolFailed as ToolFailed
    from ryecore.items.refs import ItemRef as ItemRef
    from ryecore.items.signing import sign_item as sign_item
    from ryecore.items.spaces import Space as Space
    from ryecore.items.trust import TrustStore as TrustStore
    from ryecore.items.verification import VerifiedItem as VerifiedItem
    from ryecore.items.verification import verify_item as verify_item
    from ryecore.lillux.keys import SigningKey as SigningKey
    from ryecore.policy.approval import ApprovalRequest as ApprovalRequest
    from ryecore.policy.approval import Approve as Approve
    from ryecore.policy.context import CallContext as CallContext
    from ryecore.policy.context import CancelToken as CancelToken
    from ryecore.rye import Rye as Rye
    from ryecore.state.registry import ThreadRegistry as ThreadRegistry
    from ryecore.sync import SyncRye as SyncRye

_HOMES = {
    "ApprovalRequest": "policy.approval",
    "Approve": "policy.approval",
    "CallContext": "policy.context",
    "CancelToken": "policy.context",
    "Chain": "chain.model",
    "ChainElement": "chain.model",
    "ChainValidator": "chain.validator",
    "EnvResolver": "chain.environment",
    "ExecutePrimitive": "chain.primitives",
    "ExecutionPlan": "chain.model",
    "ExecutionResult": "chain.model",
    "IntegrityError": "errors",
    "ItemNotFound": "errors",
    "ItemRef": "items.refs",
    "MAX_CHAIN_DEPTH": "chain.builder",
    "PRIMITIVE_MAP": "chain.primitives",
    "PrimitiveExecutor": "chain.executor",
    "Rye": "rye",
    "RyeError": "errors",
    "SigningKey": "lillux.keys",
    "Space": "items.spaces",
    "SyncRye": "sync",
    "ThreadRegistry": "state.registry",
    "ToolFailed": "errors",
    "TrustStore": "items.trust",
    "VerifiedItem": "items.verification",
    "rye_execute": "calls",
    "rye_fetch": "calls",
    "rye_sign": "calls",
    "sign_item": "items.signing",
    "verify_item": "items.verification",
}
"""The public names and the modules that they come from, which are imported when first needed."""

__all__ = [
    "MAX_CHAIN_DEPTH",
    "PRIMITIVE_MAP",
    "ApprovalRequest",
    "Approve",
    "CallContext",
    "CancelToken",
    "Chain",
    "ChainElement",
    "ChainValidator",
    "EnvResolver",
    "ExecutePrimitive",
    "ExecutionPlan",
    "ExecutionResult",
    "IntegrityError",
    "ItemNotFound",
    "ItemRef",
    "PrimitiveExecutor",
    "Rye",
    "RyeError",
    "SigningKey",
    "Space",
    "SyncRye",
    "ThreadRegistry",
    "ToolFailed",
    "TrustStore",
    "VerifiedItem",
    "rye_execute",
    "rye_fetch",
    "rye_sign",
    "sign_item",
    "verify_item",
]

__version__ = "0.1.0"


__getattr__, __dir__ = lazy_names(__name__, _HOMES)
