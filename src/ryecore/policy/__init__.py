"""What is allowed, decided without I/O: capabilities, conditions, limits, the order of hooks."""

from ryecore.policy.capabilities import allows, capability_of
from ryecore.policy.context import CallContext, CancelToken

__all__ = ["CallContext", "CancelToken", "allows", "capability_of"]
