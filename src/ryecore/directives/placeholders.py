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

__all__ = ["PLACEHOLDER", "fill", "fill_tree"]

PLACEHOLDER: Final = re.compile(
    r"\{input:(?P<name>[A-Za-z_][A-Za-z0-9_-]*)(?:(?P<optional>\?)|[:|](?P<default>[^{}]*))?\}"
    r"|\$\{inputs\.(?P<dotted>[A-Za-z_][A-Za-z0-9_-]*)\}"
)


def fill(text: str, inputs: Mapping[str, object]) -> str:
    """Put inputs in; what is no text is written as JSON.

    Args:
        text: The text with placeholders.
        inputs: The inputs that have a value.

    Returns:
        The text. Whatever looks like a placeholder in a value stays as it is.
    """

    def value_of(found: re.Match[str]) -> str:
        value = _value(found, inputs)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return PLACEHOLDER.sub(value_of, text)


def fill_tree(tree: object, inputs: Mapping[str, object]) -> object:
    """Put inputs into every text of a tree; one that is a single placeholder keeps its type."""
    if isinstance(tree, str):
        whole = PLACEHOLDER.fullmatch(tree)
        return fill(tree, inputs) if whole is None else _value(whole, inputs)
    if isinstance(tree, Mapping):
        return {key: fill_tree(value, inputs) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [fill_tree(value, inputs) for value in tree]
    return tree


def _value(found: re.Match[str], inputs: Mapping[str, object]) -> object:
    name = found["name"] or found["dotted"]
    if name in inputs:
        return inputs[name]
    if found["optional"]:
        return ""
    return found[0] if found["default"] is None else found["default"]
