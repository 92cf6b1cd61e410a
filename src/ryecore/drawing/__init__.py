"""Pictures of boxes and lines, written as SVG, mermaid or HTML, without I/O.

Whoever has something to show makes a `Picture` of it: of a chain, a tree of threads, a graph.
"""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if TYPE_CHECKING:
    from ryecore.drawing.html import to_html as to_html
    from ryecore.drawing.mermaid import to_mermaid as to_mermaid
    from ryecore.drawing.picture import Box as Box
    from ryecore.drawing.picture import Line as Line
    from ryecore.drawing.picture import Picture as Picture
    from ryecore.drawing.svg import to_svg as to_svg
else:
    __getattr__, __dir__ = lazy_names(__name__)
