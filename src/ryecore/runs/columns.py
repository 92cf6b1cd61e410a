"""Texts that have to fit into columns of a terminal."""

import unicodedata

__all__ = ["cleaned", "columns_of", "cut", "fitted"]


def cleaned(text: str) -> str:
    """A text on one line, without what could steer a terminal or turn its direction."""
    return "".join(
        one if unicodedata.category(one)[0] not in "CZ" or one == " " else "�"
        for one in " ".join(text.split())
    )


def columns_of(text: str) -> int:
    """How many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def fitted(name: str, room: int) -> str:
    """A name whose end, which says most, is kept where it doesn't fit."""
    return name if columns_of(name) <= room else f"…{cut(name[::-1], room, mark='')[::-1][1:]}"


def cut(text: str, room: int, mark: str = "…") -> str:
    """A text whose beginning is kept where it doesn't fit.

    Args:
        text: The text.
        room: How many columns there are.
        mark: What says that there is more.
    """
    if columns_of(text) <= room:
        return text
    kept, left = "", room - len(mark)
    for one in text:
        left -= columns_of(one)
        if left < 0:
            break
        kept += one
    return kept + mark
