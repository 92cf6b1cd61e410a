"""What people see: styled text, pictures, status icons, figures, and one sanitizer for them all.

Other rooms fill a `StyledText` or a `Picture`; this one writes them for a terminal, a log, HTML,
SVG or mermaid, without I/O.
"""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if TYPE_CHECKING:
    from ryecore.display.mermaid import to_mermaid as to_mermaid
    from ryecore.display.picture import Box as Box
    from ryecore.display.picture import Line as Line
    from ryecore.display.picture import Picture as Picture
    from ryecore.display.svg import to_html as to_html
    from ryecore.display.svg import to_svg as to_svg
else:
    __getattr__, __dir__ = lazy_names(__name__)
