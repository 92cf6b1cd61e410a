"""Values and places of documents in errors, and the line on which each key of YAML stands.

Source: docs/design/graphs.md#the-walk.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from ryecore.errors import InputError

__all__ = ["Place", "bounded", "check_mapping", "key_path", "line_numbers", "nearest", "quoted"]

Place: TypeAlias = tuple[str | int, ...]
"""Where in a document: keys, and indexes of lists."""

_MAX_PLACES: Final = 1_000_000


def bounded(text: str, max_chars: int = 100) -> str:
    """Return a text for an error; where it is long, its beginning."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def quoted(value: object) -> str:
    """Return a value as Python writes it, for an error's text; no more than its beginning."""
    if isinstance(value, str):
        return repr(bounded(value))
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more digits than Python writes
        return "a value too long to show"
    return bounded(text)


def check_mapping(
    value: Mapping[str, Any] | None,
    what: str = "Parameters",
    example: str = '{"path": "sales.csv"}',
) -> Mapping[str, Any]:
    """Return a mapping with text keys, named `what` in errors; an empty one for None."""
    if value is None:
        return {}
    next_step = f"Pass a mapping with text keys, such as {example}."
    if not isinstance(value, Mapping):
        raise InputError(
            f"{what} must be a mapping, not {type(value).__name__}.", next_step=next_step
        )
    for key in value:
        if not isinstance(key, str):
            raise InputError(f"{what} must have text keys, not {key!r:.80}.", next_step=next_step)
    return value


def key_path(place: Place) -> str:
    """Return a place as people write it: `config.nodes.load.next[0].to`. Long keys are cut off."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = bounded(part)
            text += f".{shown}" if text else shown
    return text


def nearest(place: Place, lines: Mapping[Place, int]) -> Place:
    """Return a place, or the nearest one above it whose line is known."""
    return next(
        (place[:length] for length in range(len(place), 0, -1) if place[:length] in lines), ()
    )


def line_numbers(text: str) -> Mapping[Place, int]:
    """Return the line of each key and each item of a list; nothing where the text is not YAML.

    It goes through the parser's events, without recursion and without expanding aliases. The text
    was loaded before, and so is within bounds.
    """
    from ruamel.yaml import YAML  # noqa: PLC0415 - only where there is a problem
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    found = _Lines()
    try:
        for event in YAML(typ="safe", plug_ins=[]).parse(text):
            found.take(event)
            if len(found.lines) > _MAX_PLACES:
                break
    except YAMLError:
        return {}
    return found.lines


class _Open:
    """A collection that is still open."""

    __slots__ = ("count", "is_mapping", "key", "place")

    def __init__(self, place: Place, is_mapping: bool) -> None:
        self.place, self.is_mapping = place, is_mapping
        self.count = 0
        self.key: str | None = None


class _Lines:
    """The lines, as the events come."""

    def __init__(self) -> None:
        self.lines: dict[Place, int] = {}
        self._open: list[_Open] = []

    def take(self, event: object) -> None:
        from ruamel.yaml import events  # noqa: PLC0415

        match event:
            case events.MappingStartEvent() | events.SequenceStartEvent():
                place = self._place(event.start_mark.line + 1, None)
                self._open.append(_Open(place, isinstance(event, events.MappingStartEvent)))
            case events.MappingEndEvent() | events.SequenceEndEvent():
                self._open.pop()
            case events.ScalarEvent():
                self._place(event.start_mark.line + 1, event.value)
            case events.AliasEvent():
                self._place(event.start_mark.line + 1, None)

    def _place(self, line: int, scalar: str | None) -> Place:
        """Return the place of what begins here; a value has the line of its key."""
        if not self._open:
            return ()
        inside = self._open[-1]
        if not inside.is_mapping:
            place: Place = (*inside.place, inside.count)
            self.lines[place] = line
            inside.count += 1
            return place
        inside.count += 1
        if inside.count % 2:
            inside.key = scalar if scalar is not None else ""
            place = (*inside.place, inside.key)
            self.lines.setdefault(place, line)
            return place
        return (*inside.place, inside.key or "")
