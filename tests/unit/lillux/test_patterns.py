"""Regular expressions of signed files, which no text keeps busy for long."""

import re
import threading
import warnings

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ryecore.errors import TextTooLong
from ryecore.lillux.patterns import MAX_PATTERN_CHARS, TextPattern, compile_pattern


def _joined(parts: list[str]) -> str:
    return "".join(parts)


_ATOMS = st.sampled_from([
    "a", "b", "A", "é", "-", "&", "~", "#", " ", ".", r"\d", r"\w", r"\s", r"\W", r"\.", r"\<",
    r"\-", r"\ ", r"\x61", r"\u00e9", r"\n", "[ab]", "[^a]", "[]a]", "[[a]", "[a&&b]", "[a-c-]",
    "[--a]", "[a~~]", r"[\d-]", r"[\b]", r"[\x61-\x63]", "[ #]", "{", "{x}", "a{", "}", "]",
    "a{,2}", "a{2}", "a{1,2}", "a{1,}", "(?#c)", "(?i:a)", "(?P<n>a)?",
])  # fmt: skip
_ANCHORED = _ATOMS | st.sampled_from([r"\b", r"\B", r"\A"])


def _wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, max_size=3).map(_joined)
    return (
        body.map(lambda text: f"({text})*")
        | body.map(lambda text: f"(?:{text})+?")
        | st.tuples(body, body).map(lambda two: f"(?:{two[0]}|{two[1]})")
        | body.map(lambda text: f"(?s-i:{text})")
        | body.map(lambda text: f"(?x: {text} # so\n)")
    )


_BODIES = st.lists(st.recursive(_ANCHORED, _wrapped, max_leaves=4), max_size=4).map(_joined)
_PATTERNS = st.tuples(
    st.sampled_from(["", "(?i)", "(?m)", "(?ims)", "(?u)"]),
    st.sampled_from(["", "^", r"\A"]),
    _BODIES,
    st.sampled_from(["", "$", r"\Z", "$|b"]),
).map("".join)
_TEXTS = st.text(alphabet="abcAé-&~#[]{}x \n\t.1_<\x08", max_size=8)


@given(_PATTERNS, _TEXTS)
def test_a_pattern_finds_what_python_finds(pattern: str, text: str) -> None:
    assume(text or r"\B" not in pattern)  # where Python's versions differ
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = re.search(pattern, text) is not None
    except re.error:
        with pytest.raises(ValueError, match="is not a regular expression"):
            TextPattern(pattern)
        return
    assert TextPattern(pattern).is_match(text) is expected


@pytest.mark.parametrize(
    ("pattern", "text", "is_match"),
    [
        ("b", "abc", True),
        ("^foo$", "foo\n", True),
        (r"^foo\Z", "foo\n", False),
        ("(?m)^b$", "a\nb\nc", True),
        ("^b$", "a\nb\nc", False),
        (r"^\d+$", "٣", True),
        ("(?i)É", "é", True),
        ("(?x) a b  # both\n c", "abc", True),
        (r"a\Sc", "a\ud800c", True),
        ("[[a]", "[", True),
    ],
)
def test_what_users_rely_on_is_as_in_python(pattern: str, text: str, is_match: bool) -> None:
    assert TextPattern(pattern).is_match(text) is is_match


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a(?=b)", "look-around"),
        ("a(?!b)", "look-around"),
        ("(?<=a)b", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "backreference"),
        ("(?P<n>a)(?P=n)", "backreference"),
        ("(?>a)", "atomic"),
        ("a++", "possessive"),
        ("(a)?(?(1)b|c)", "conditional"),
        (r"\012", "octal"),
        ("(?a:a)", "flag a"),
        (r"\w{1,9000}", "too large"),
        (r"((a{100}){100}){100}", "repeats its parts"),
        ("(" * 80 + ")" * 80, "nest"),
        ("a\ud800", "can't be used"),
    ],
)
def test_what_the_engine_lacks_is_refused_with_the_pattern_and_the_syntax(
    pattern: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        TextPattern(pattern)
    assert repr(pattern) in str(refused.value)
    assert "Supported is the syntax of Python's re without look-around" in str(refused.value)


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "[b-a]", "a" * (MAX_PATTERN_CHARS + 1)])
def test_what_is_no_regular_expression_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="regular expression"):
        compile_pattern(pattern)


HOSTILE = {
    r"(a+)+b": "a" * 1_000_000 + "c",
    r"^(a+)+$": "a" * 1_000_000 + "!",
    r"(a|a)*c\d": "a" * 1_000_000 + "c",
    r"(a|aa)+$": "a" * 1_000_000 + "!",
    r"(.*)*x$": "x" * 1_000_000 + "y",
    r"(\w+\s?)+\.$": "word " * 200_000,
    r"(?i)(x+x+)+y": "xX" * 500_000,
    r"[ab]*a[ab]{60}c": "ab" * 200_000,
}


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_hostile_pattern_is_searched_in_time_without_the_interpreters_lock(pattern: str) -> None:
    found: list[bool] = []
    thread = threading.Thread(
        target=lambda: found.append(compile_pattern(pattern).is_match(HOSTILE[pattern])),
        daemon=True,
    )
    thread.start()
    thread.join(60)
    assert found == [False]


def test_a_text_that_would_take_long_is_not_searched() -> None:
    pattern = TextPattern("(.{1,500}x){1,4}!")
    with pytest.raises(TextTooLong, match="1,000,000 characters") as refused:
        pattern.is_match("x" * 1_000_000)
    assert refused.value.pattern == pattern.pattern
    assert "fewer repetitions" in str(refused.value)
    assert pattern.is_match("x" * 1_000 + "!")
