"""Pictures to draw in tests."""

from hypothesis import strategies as st

from ryecore.display import Box, Line, Picture
from ryecore.display.picture import SIGNS

HOSTILE = (
    "</title><script>alert(1)</script>",
    '" onload="alert(1)',
    "]]><!-- &amp; <![CDATA[",
    "a\x00b\x1b[31mc\x85d\ud800e\ufffef",
    "\u202egnp.exe\u2066 \u2028next",
    "end",
    '%%{init: {"theme": "dark"}}%%',
    '"]; click n0 "javascript:alert(1)"',
    "1. one **two** `three` __four__ https://example.org",
    "{{a}} |b| [c] (d) #35; ; --> graph subgraph",
    "</style><style>*{display:none}",
    "",
    "漢字" * 80,
    "x" * 400,
)

texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20))


@st.composite
def pictures(draw, label=texts):
    """Any picture: circles, loops, lines that double each other, boxes that hang on nothing."""
    count = draw(st.integers(1, 12))
    boxes = tuple(
        Box(
            id=str(at),
            label=draw(label),
            details=tuple(draw(st.lists(label, max_size=2))),
            shape=draw(st.sampled_from(["box", "diamond", "round", "stack"])),
            status=draw(st.sampled_from(["", *SIGNS])),
            tooltip=draw(label),
        )
        for at in range(count)
    )
    numbers = st.integers(0, count - 1).map(str)
    lines = tuple(
        Line(
            draw(numbers), draw(numbers), draw(label),
            draw(st.sampled_from(["solid", "dashed", "thick"])), draw(st.booleans()),
        )
        for _ in range(draw(st.integers(0, 2 * count)))
    )  # fmt: skip
    return Picture(
        boxes, lines, draw(label), draw(st.booleans()), draw(st.sampled_from(["down", "right"]))
    )


def chain_of(*labels: str) -> Picture:
    """Boxes of which each leads to the next."""
    boxes = tuple(Box(label, label) for label in labels)
    return Picture(boxes, tuple(map(Line, labels, labels[1:])))
