"""Docstrings in Google's style."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.tools.annotations import read_docstring


def test_what_stands_before_the_sections_is_the_description() -> None:
    said = read_docstring(
        """Add two numbers.

        The second one is doubled: twice.

        Args:
            a: The first,
                which is longer than
                one line.
            b (int, optional): The second: doubled.

            *rest: More.
            c:
                On its own line.

        Returns:
            The sum.
            d: not an argument.

        Raises:
            ValueError: Never.
        """
    )

    assert said.description == "Add two numbers.\n\nThe second one is doubled: twice."
    assert said.arguments == {
        "a": "The first, which is longer than one line.",
        "b": "The second: doubled.",
        "rest": "More.",
        "c": "On its own line.",
    }


@pytest.mark.parametrize("text", [None, "", "   \n "])
def test_nothing_says_nothing(text: str | None) -> None:
    assert read_docstring(text).description == ""
    assert read_docstring(text).arguments == {}


def test_what_follows_the_arguments_is_none() -> None:
    said = read_docstring("Do.\n\nArgs:\n  a: One.\n\nProse: with a colon.\n  b: no.\n")

    assert said.arguments == {"a": "One."}


def test_a_note_inside_an_argument_is_part_of_it() -> None:
    said = read_docstring("Do.\n\nArgs:\n    a: One.\n        Note: well.\n    b: Two.")

    assert said.arguments == {"a": "One. Note: well.", "b": "Two."}


def test_attributes_count_too() -> None:
    assert read_docstring("A point.\n\nAttributes:\n    x: Where.").arguments == {"x": "Where."}


@given(st.text(), st.text("abc: \n\t()Args*", max_size=80))
def test_no_text_breaks_it(text: str, more: str) -> None:
    assert set(read_docstring(text).description.split()) <= set(text.split())
    said = read_docstring(f"Do.\n\nArgs:\n{more}")
    assert said.description.startswith("Do.")
    assert all(name in more for name in said.arguments)
