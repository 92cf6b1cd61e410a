"""An SVG is one safe element whatever stands in it, and says by sign what it says by colour."""

import re

import pytest
from defusedxml.ElementTree import fromstring
from hypothesis import given

from ryecore.display import Box, Line, Picture, to_html, to_svg
from ryecore.display.picture import SIGNS
from ryecore.display.text import status_icon, status_words
from tests.unit.display.pictures import HOSTILE, chain_of, pictures

SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {"svg", "title", "desc", "style", "g", "rect", "circle", "path", "polygon", "text"}


def texts_of(svg):
    return ["".join(one.itertext()) for one in fromstring(svg).iter(f"{SVG}text")]


def titles_of(svg):
    return ["".join(one.itertext()) for one in fromstring(svg).iter(f"{SVG}title")]


@given(pictures())
def test_whatever_stands_in_it_is_text(picture):
    root = fromstring(to_svg(picture))
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in ALLOWED
        assert not any(name.startswith("on") or "href" in name for name in element.attrib)
    style = "".join(root.find(f"{SVG}style").itertext())
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_name_can_not_leave_its_place(hostile):
    boxes = (Box(hostile, hostile, (hostile,), tooltip=hostile), Box("b", "b", status="failed"))
    svg = to_svg(Picture(boxes, (Line(hostile, "b", hostile),), title=hostile))
    safe = to_svg(Picture((Box("a", "n", ("n",)), boxes[1]), (Line("a", "b", "n"),), title="n"))
    tags = sorted(one.tag for one in fromstring(svg).iter())
    if hostile:
        assert tags == sorted(one.tag for one in fromstring(safe).iter())
    for char in "\x00\x1b\x85\ud800\ufffe\u202e\u2066\u2028":
        assert char not in svg


def test_nothing_is_loaded_and_nothing_runs():
    svg = to_svg(chain_of("a", "b"))
    assert re.findall(r"https?://[^\"']+", svg) == ["http://www.w3.org/2000/svg"]
    for word in ("<script", "<image", "<use", "<foreignObject", "href", "url(", "@font-face"):
        assert word not in svg


def test_a_long_label_is_shortened_and_the_whole_is_in_its_title():
    label = "acme/" + "very-" * 30 + "last"
    svg = to_svg(Picture((Box("a", label),), ()))
    shown = texts_of(svg)[0]
    assert len(shown) < 50
    assert shown.startswith("acme/")
    assert shown.endswith("last")
    assert "…" in shown
    assert any(label in title for title in titles_of(svg))


@pytest.mark.parametrize("status", SIGNS)
def test_a_status_is_told_by_sign_and_word_too(status):
    plain, told = (
        to_svg(Picture((Box("a", "a"),), ())),
        to_svg(Picture((Box("a", "a", status=status),), (), legend=False)),
    )
    assert SIGNS[status].path in told
    assert SIGNS[status].path not in plain
    assert any(title.endswith(status_words(status)) for title in titles_of(told))
    assert status_words(status) not in texts_of(told)
    with_legend = to_svg(Picture((Box("a", "a", status=status),), ()))
    assert status_words(status) in texts_of(with_legend)


def test_each_status_has_a_sign_of_its_own():
    assert len({one.path for one in SIGNS.values()}) == len(SIGNS)
    assert len(set(map(status_icon, SIGNS))) == len(SIGNS)


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("status", SIGNS)
def test_text_and_signs_can_be_read_on_both_grounds(status):
    sign = SIGNS[status]
    for tone, label, detail in (
        (sign.light, "#1f2328", "#57606a"), (sign.dark, "#e6edf3", "#9da7b3"),
    ):  # fmt: skip
        assert contrast(tone.fill, label) > 7
        assert contrast(tone.fill, detail) > 4.5
        assert contrast(tone.fill, tone.stroke) > 3


def test_it_follows_the_system_and_the_theme_of_a_notebook():
    svg = to_svg(chain_of("a", "b"))
    assert "@media (prefers-color-scheme:dark)" in svg
    assert "[data-jp-theme-light='false']" in svg
    assert ".vscode-dark" in svg


def test_two_on_one_page_do_not_share_names():
    one, other = to_svg(chain_of("a", "b")), to_svg(chain_of("a", "c"))
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (one, other)]
    assert all(ids)
    assert not ids[0] & ids[1]
    name = fromstring(one).get("class")
    style = "".join(fromstring(one).find(f"{SVG}style").itertext())
    for rule in re.findall(r"([^{}]+)\{[^{}]", style):
        assert rule.startswith("@media") or all(
            name in part for part in re.split(r",(?=\.rye)", rule)
        )


def test_it_can_be_read_aloud():
    picture = Picture(
        (Box("a", "fetch", status="completed"), Box("b", "tell")), (Line("a", "b"),), "the work"
    )
    root = fromstring(to_svg(picture))
    named = {one.get("id"): "".join(one.itertext()) for one in root.iter() if one.get("id")}
    assert root.get("role") == "img"
    title, description = (named[one] for one in root.get("aria-labelledby").split())
    assert title == "the work"
    assert "fetch (completed) leads to tell." in description


def test_what_is_taken_is_drawn_over_what_is_not():
    boxes = (Box("a", "a"), Box("b", "b"))
    svg = to_svg(Picture(boxes, (Line("a", "b", is_taken=True), Line("b", "a", kind="dashed"))))
    kinds = [one.get("class") for one in fromstring(svg).iter(f"{SVG}path")]
    assert kinds == ["l e", "l t"]


def test_a_wide_one_is_scrolled_in_a_notebook():
    html = to_html(chain_of("a", "b"))
    assert html.startswith('<div style="overflow-x:auto')
    assert to_svg(chain_of("a", "b")) in html
