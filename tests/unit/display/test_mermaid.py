"""Mermaid text says the same, and nothing in a picture is read as mermaid."""

import re

from hypothesis import given

from ryecore.display import Box, Line, Picture, to_mermaid
from tests.unit.display.pictures import pictures

BOX = re.compile(r'    n\d+(\["|\{"|\(\["|\[\[")([^"]*)("\]|"\}|"\]\)|"\]\])')
ARROW = re.compile(r'    n\d+ (-->|-\.->|==>)(\|"[^"]*"\|)? n\d+')
STYLE = re.compile(r"    (classDef \w+ [\w#:, -]+|class [n\d,]+ \w+|linkStyle [\d,]+ [\w#:,-]+)")


def test_a_flowchart_as_a_person_would_write_it():
    picture = Picture(
        (
            Box("start", "start", shape="round", status="completed"),
            Box("ask", "good?", shape="diamond", status="running"),
            Box("each", "read files", ("48 of 120",), shape="stack"),
            Box("end", "end"),
        ),
        (
            Line("start", "ask", is_taken=True),
            Line("ask", "each", "score >= 0.8", kind="dashed"),
            Line("each", "end", kind="thick"),
        ),
        title='the "work"',
    )
    assert to_mermaid(picture) == (
        '---\ntitle: "the \\"work\\""\n---\nflowchart TD\n'
        '    n0(["✓ start"])\n'
        '    n1{"▸ good?"}\n'
        '    n2[["read files<br/>48 of 120"]]\n'
        '    n3["end"]\n'
        "    n0 --> n1\n"
        '    n1 -.->|"score #62;#61; 0.8"| n2\n'
        "    n2 ==> n3\n"
        "    classDef completed fill:#e9f7ed,stroke:#1a7f37,color:#1f2328\n"
        "    class n0 completed\n"
        "    classDef running fill:#e9f2fe,stroke:#0969da,color:#1f2328\n"
        "    class n1 running\n"
        "    linkStyle 0 stroke:#0969da,stroke-width:2px\n"
    )


@given(pictures())
def test_whatever_stands_in_it_is_text(picture):
    lines = to_mermaid(picture).splitlines()
    if lines[0] == "---":
        assert lines[1].startswith('title: "')
        assert lines[2] == "---"
        del lines[:3]
    assert lines[0] in ("flowchart TD", "flowchart LR")
    kinds = [
        next(kind for kind in (BOX, ARROW, STYLE) if kind.fullmatch(line)) for line in lines[1:]
    ]
    assert kinds.count(BOX) == len(picture.boxes)
    assert kinds.count(ARROW) == len(picture.lines)
    for line in lines[1:]:
        text = re.sub(r"#\d+;|<br/>|-\.?->|==>", "", line)
        assert "<" not in text
        assert "%" not in text
        assert "`" not in text


def test_a_name_that_mermaid_takes_for_css_keeps_its_characters():
    picture = Picture((Box("a", "style: a{b}"), Box("b", "b")), (Line("a", "b", "classDef x:{y}"),))
    written = to_mermaid(picture)
    assert 'n0["style#58; a#123;b#125;"]' in written
    assert '|"classDef x#58;#123;y#125;"|' in written
