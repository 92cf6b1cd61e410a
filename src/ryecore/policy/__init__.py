"""The policy, decided without I/O: capabilities, conditions, limits, and the order of hooks."""

from ryecore.policy.context import CallContext, CancelToken
from ryecore.policy.permissions import allows, capability_of

__all__ = ["CallContext", "CancelToken", "allows", "capability_of"]
