"""Time in nanoseconds."""

from ryecore._native import monotonic_ns, now_ns

__all__ = ["monotonic_ns", "now_ns"]
