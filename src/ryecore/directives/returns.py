"""The `<returns>` section that tells a model which outputs a thread is to hand back. Pure.

Source: docs/design/execute.md#returns; decision 34.
"""

from collections.abc import Iterable
from typing import Final

from ryecore.directives.inputs import Declared

__all__ = ["render_returns"]

_INSTRUCTION: Final = "When you are done, call rye_directive_return with these outputs."
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def render_returns(outputs: Iterable[Declared]) -> str:
    """Render declared outputs; the same outputs always give the same text.

    Returns:
        The section and one line that says what to do; empty where nothing is declared.
    """
    lines = [
        f'<output name="{one.name.translate(_ESCAPES)}" type="{one.type}"'
        + (' required="true">' if one.required else ">")
        + f"{one.description.translate(_ESCAPES)}</output>"
        for one in outputs
    ]
    return "\n".join(["<returns>", *lines, "</returns>", _INSTRUCTION]) if lines else ""
