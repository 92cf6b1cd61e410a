"""What the fake model of each service says."""

from typing import Final

KEYS: Final = frozenset({"key-a", "key-g"})
WORDS: Final = tuple(f"word{number} " for number in range(20))
TICKET: Final = '{"order": 7, "mood": "calm"}'

Call = tuple[str, str]
"""A tool's name, and its arguments as JSON."""


def answer(asked: str, result: str | None) -> Call | tuple[str, ...]:
    """Say what a model answers: a call, or pieces of text.

    Args:
        asked: The last message of the user.
        result: What the tool that was called after it has returned, or None.
    """
    if result is not None:
        return (*WORDS[1:], result)
    if "refund" in asked:
        return "refund", '{"order": 7, "usd": 20.0}'
    return "order_status", '{"order": 7}'
