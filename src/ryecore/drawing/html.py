"""A picture for a notebook."""

from ryecore.drawing.picture import Picture
from ryecore.drawing.svg import to_svg

__all__ = ["to_html"]


def to_html(picture: Picture) -> str:
    """Wrap a picture so that a wide one is scrolled sideways, not squeezed.

    Args:
        picture: What is shown.
    """
    return f'<div style="overflow-x:auto;max-width:100%;margin:4px 0">{to_svg(picture)}</div>'
