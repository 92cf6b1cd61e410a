"""The switch that refuses every request of an adapter to a model.

It is for tests, and it is the one thing here that holds for the whole process: what it guards
against is the provider that nobody thought of. No environment variable sets it.
"""

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, Self

from ryecore.errors.agents import LlmError

__all__ = ["allow_model_requests", "check_model_requests_allowed", "refuse_model_requests"]


class _Switch:
    """What holds now."""

    __slots__ = ("allowed",)

    def __init__(self) -> None:
        self.allowed = True


_SWITCH: Final = _Switch()


class _Turned:
    """A turn of the switch. As a context manager it turns it back at its end."""

    __slots__ = ("_before",)

    def __init__(self, allowed: bool) -> None:
        self._before = _SWITCH.allowed
        _SWITCH.allowed = allowed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _SWITCH.allowed = self._before


def refuse_model_requests() -> AbstractContextManager[object]:
    """From now on, let no adapter ask a model, in this whole process.

    A server on this machine is refused as well. Scripted models and functions ask nobody, and are
    not concerned.

    Returns:
        A context manager. With it, what was before holds again at its end; without, the refusal
        stays.
    """
    return _Turned(False)


def allow_model_requests() -> AbstractContextManager[object]:
    """From now on, let adapters ask models again; see `refuse_model_requests`.

    Returns:
        A context manager. With it, what was before holds again at its end.
    """
    return _Turned(True)


def check_model_requests_allowed(provider: str, model: str = "") -> None:
    """Refuse a request if the switch says so. An adapter calls it before it opens a connection.

    Args:
        provider: The provider's id.
        model: The model that is asked for.

    Raises:
        LlmError: `bad_request`: requests to models are refused.
    """
    if not _SWITCH.allowed:
        raise LlmError(
            f"Requests to models are refused here, and {provider!r} was asked for one.",
            next_step="Give the test a ScriptedProvider, or ask within `with "
            "allow_model_requests():`.",
            kind="bad_request",
            provider=provider,
            model=model,
        )
