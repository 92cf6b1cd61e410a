"""What is allowed, decided without I/O."""

from ryecore.policy.capabilities import allows, capability_of
from ryecore.policy.context import CallContext, CancelToken

__all__ = ["CallContext", "CancelToken", "allows", "capability_of"]
