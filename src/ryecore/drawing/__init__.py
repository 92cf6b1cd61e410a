"""Pictures of boxes and lines: laid out, and written as SVG, mermaid or HTML. Pure.

Whoever has something to show makes a `Picture` of it: of a chain, a tree of threads, a graph.
"""

from ryecore.drawing.html import to_html
from ryecore.drawing.mermaid import to_mermaid
from ryecore.drawing.picture import Box, Line, Picture
from ryecore.drawing.svg import to_svg

__all__ = ["Box", "Line", "Picture", "to_html", "to_mermaid", "to_svg"]
