"""The piece of a text around the words that were found."""

from hypothesis import given
from hypothesis import strategies as st

from ryecore.search.excerpt import MAX_PREVIEW_CHARACTERS, excerpt, plain


def test_the_words_that_were_found_are_pointed_at():
    text, hits = excerpt("the \x02high\x03\n  \x02tide\x03 comes")
    assert text == "the high tide comes"
    assert [text[start:end] for start, end in hits] == ["high", "tide"]


def test_a_long_text_is_cut_around_the_first_of_them():
    text, hits = excerpt("x " * 300 + "\x02tide\x03" + " y" * 300)
    assert len(text) == MAX_PREVIEW_CHARACTERS
    assert text.startswith("…")
    assert text.endswith("…")
    assert [text[start:end] for start, end in hits] == ["tide"]


def test_what_is_not_printable_becomes_a_space():
    assert plain("a\x1b[1m\0b\nc\ud800") == "a [1m b c "


@given(st.lists(st.sampled_from(["word", "\x02hit\x03", "\n", "é", "x" * 150])).map(" ".join))
def test_hits_are_always_the_words_and_the_text_is_bounded(marked):
    text, hits = excerpt(marked)
    assert len(text) <= MAX_PREVIEW_CHARACTERS
    assert all(text[start:end] == "hit" for start, end in hits)
