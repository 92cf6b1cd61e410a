"""The piece of a text around the words that were found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.search.excerpt import MAX_PREVIEW_CHARACTERS, beginning, excerpt, plain


def hits(text: str, *phrases: str) -> list[str]:
    shown, places = excerpt(text, phrases)
    return [shown[start:end] for start, end in places]


def test_the_words_that_were_found_are_pointed_at():
    text, places = excerpt("the high\n  tide comes", ("tide", "high"))
    assert text == "the high tide comes"
    assert [text[start:end] for start, end in places] == ["high", "tide"]


def test_a_long_text_is_cut_around_the_first_of_them():
    text, places = excerpt("x " * 300 + "tide" + " y" * 300, ("tide",))
    assert len(text) == MAX_PREVIEW_CHARACTERS
    assert text.startswith("…")
    assert text.endswith("…")
    assert [text[start:end] for start, end in places] == ["tide"]


@pytest.mark.parametrize(
    ("text", "phrase", "found"),
    [
        ("Ebb, then HIGH_tide!", "high tide", ["HIGH_tide"]),
        ("tides tidal", "tid*", ["tid", "tid"]),
        ("untidy", "tid*", []),
        ("tidelands", "tide", []),
        ("une marée haute", "maree", ["marée"]),
        ("file-system/write.py", "file-system/write", ["file-system/write"]),
        ("(a+b)*", "a+b", ["a+b"]),
        ("anything", "++", []),
        ("İstanbul ß ﬁ", "istanbul", ["İstanbul"]),
    ],
)
def test_a_phrase_is_found_as_the_index_finds_it(text, phrase, found):
    assert hits(text, phrase) == found


def test_what_is_not_printable_becomes_a_space():
    assert plain("a\x1b[1m\0b\nc\ud800") == "a [1m b c "


@pytest.mark.parametrize(
    ("text", "phrase"),
    [("the " * 2_000_000, "the"), ("the " * 2_000_000, "the tide"), ("a" * 8_000_000, "aa")],
)
def test_a_text_of_hits_or_of_near_misses_takes_time_as_it_is_long(text, phrase):
    """With the square of it, these would take hours; the suite's timeout is two minutes."""
    shown, _ = excerpt(text, (phrase,) * 100)
    assert len(shown) <= MAX_PREVIEW_CHARACTERS


@given(st.lists(st.sampled_from(["word", "hit", "\n", "é", "x" * 150])).map(" ".join))
def test_hits_are_always_the_words_and_the_text_is_bounded(text):
    shown, places = excerpt(text, ("hit",))
    assert len(shown) <= MAX_PREVIEW_CHARACTERS
    assert all(shown[start:end] == "hit" for start, end in places)
    assert bool(places) == ("hit" in text.split())


@given(st.text(max_size=1000))
def test_a_beginning_is_bounded_and_on_one_line(text):
    shown = beginning(text)
    assert len(shown) <= MAX_PREVIEW_CHARACTERS
    assert "\n" not in shown
