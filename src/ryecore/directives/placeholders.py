"""Placeholders for inputs, put in in one pass: a value is never expanded again. Pure.

    {input:key}            kept as it is where the input has no value
    {input:key?}           nothing
    {input:key:default}    the default; also {input:key|default}
    ${inputs.key}          kept as it is

Source: docs/design/execute.md#placeholders; decision 34.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from ryecore.policy.paths import fill_placeholders

__all__ = ["PLACEHOLDER", "fill", "fill_tree"]

PLACEHOLDER: Final = re.compile(
    r"\{input:(?P<name>[A-Za-z_][A-Za-z0-9_-]*)(?:(?P<optional>\?)|[:|](?P<default>[^{}]*))?\}"
    r"|\$\{inputs\.(?P<dotted>[A-Za-z_][A-Za-z0-9_-]*)\}"
)


def fill(text: str, inputs: Mapping[str, object]) -> str:
    """Put inputs into a text; one that is not text is written as JSON.

    Args:
        text: The text with placeholders.
        inputs: The inputs that have a value.

    Returns:
        The text. What looks like a placeholder in a value stays as it is.
    """
    return PLACEHOLDER.sub(lambda found: _as_text(_value(found, inputs)), text)


def fill_tree(tree: object, inputs: Mapping[str, object]) -> object:
    """Put inputs into every text of a tree; one that is a single placeholder keeps its type."""
    return fill_placeholders(tree, PLACEHOLDER, lambda found: _value(found, inputs))


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _value(found: re.Match[str], inputs: Mapping[str, object]) -> object:
    name = found["name"] or found["dotted"]
    if name in inputs:
        return inputs[name]
    if found["optional"]:
        return ""
    return found[0] if found["default"] is None else found["default"]
