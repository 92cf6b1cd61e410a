"""The XML: what is refused with its line, and what is opaque."""

import pytest

from ryecore.directives.markup import DirectiveProblem, parse_markup
from ryecore.directives.parser import MAX_XML_BYTES
from tests.timing import at_most_cpu

BOMB = (
    '<!DOCTYPE lolz [\n<!ENTITY lol "lol">\n'
    + "".join(
        f'<!ENTITY lol{n} "{f"&lol{n - 1 if n > 1 else str()};" * 10}">\n' for n in range(1, 10)
    )
    + "]>\n<directive>&lol9;</directive>"
)


@pytest.mark.parametrize(
    ("xml", "match", "line"),
    [
        (BOMB, "the entity 'lol'", 11),
        (
            '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<a>&x;</a>',
            "the external entity 'x'",
            10,
        ),
        ('<!DOCTYPE a [<!ENTITY % x SYSTEM "http://example.com/x">%x;]>\n<a/>', "external", 10),
        ("<!DOCTYPE a>\n<a/>", "a DTD", 10),
        ('<!DOCTYPE a SYSTEM "a.dtd"><a/>', "a DTD", 10),
        ("<a>\n<?php evil() ?></a>", r"processing instruction, <\?php\?>", 11),
        ("<a>\n&nbsp;</a>", "undefined entity", 11),
        ("<a>\n<b>\n</a>", "mismatched tag", 12),
        ("<a/>\n<b/>", "junk after document element", 11),
        ("<a b='1' b='2'/>", "duplicate attribute", 10),
        ("<a>\0</a>", "not well-formed", 10),
        ("<a>\n" * 33, "nested too deeply", 42),
        ("<a>" + "<b/>" * 10_000 + "</a>", "too many elements", 10),
        ("<a><raw>\n<raw></a>", "mismatched|not well-formed|no element", None),
        ("<raw> <example>1</example>", "no element found", 10),
    ],
)
def test_what_is_not_allowed_or_broken_is_one_problem_with_its_line(xml, match, line):
    with pytest.raises(DirectiveProblem, match=match) as problem:
        parse_markup(xml, 10)
    if line is not None:
        assert problem.value.line == line


@pytest.mark.parametrize("tag", ["template", "example", "raw"])
@pytest.mark.parametrize(
    "content",
    [
        "\n<b>& <unclosed\n]]> <!-- ",
        "<!DOCTYPE a [<!ENTITY x 'y'>]>&x;",
        "<![CDATA[",
        "opaque-7",
        "</other>",
        "",
    ],
)
def test_the_content_of_opaque_elements_is_text_whatever_it_looks_like(tag, content):
    root = parse_markup(f"<a>\n<{tag} a='>'>{content}</{tag}><b/></a>", 1)
    opaque, behind = root.children
    assert opaque.text == content
    assert (opaque.attributes, opaque.children) == ({"a": ">"}, ())
    assert behind.line == 2 + content.count("\n")


def test_an_opaque_element_in_a_comment_or_as_an_empty_one_hides_nothing():
    root = parse_markup("<a><!-- <raw> --><raw/><example /><b/><![CDATA[<raw>]]></a>", 1)
    assert [child.tag for child in root.children] == ["raw", "example", "b"]
    assert root.text == "<raw>"


def test_a_name_that_begins_like_an_opaque_one_is_not_opaque():
    root = parse_markup("<a><rawer><b/></rawer></a>", 1)
    assert root.children[0].children[0].tag == "b"


@pytest.mark.parametrize(
    "part", ["<raw ", "<raw>", "<!--", "<![CDATA[", "<raw a='", "</raw", "<a>"]
)
def test_hostile_repetition_is_refused_in_well_under_a_second(part):
    with at_most_cpu(1), pytest.raises(DirectiveProblem):
        parse_markup(part * (MAX_XML_BYTES // len(part)), 1)
