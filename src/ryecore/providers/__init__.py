"""Adapters for model vendors, each behind its own extra."""

from ryecore.errors import MissingExtra

__all__ = ["missing_sdk"]


def missing_sdk(problem: ModuleNotFoundError, package: str, extra: str) -> Exception:
    """Return the error for a vendor's SDK that is not installed; `problem` for a broken one."""
    if not f"{package}.".startswith(f"{problem.name}."):
        return problem
    return MissingExtra(
        f"The adapter for {extra} needs the package {package}, which is not installed.",
        next_step=f"Run `pip install 'ryecore[{extra}]'`.",
        extra=extra,
    )
