"""Which command a text is."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.tools.policy import is_listed_command, words_of


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf x",
        "git status && x",
        "git status | x",
        "git status & x",
        "git status\nx",
        "git status\rx",
        "git status > x",
        "git $(x)",
        'git "$(x)"',
        'git "$HOME"',
        "git `x`",
        'git "`x`"',
        "git $IFS",
        "git <(x)",
        "(git)",
        "git # x",
        "git \\\nx",
        "git 'x",
        'git "x',
        "git\0x",
        "",
        "   ",
        "''"[:1],
    ],
)
def test_what_a_shell_takes_for_more_than_one_command_is_none(command: str) -> None:
    with pytest.raises(ValueError, match=r"it |its quotes"):
        words_of(command)


@pytest.mark.parametrize("command", [None, 1, {}, [], ["git", 1]])
def test_what_is_neither_text_nor_words_is_none(command: object) -> None:
    with pytest.raises(ValueError, match=r"it (isn|has to be)"):
        words_of(command)


def test_what_is_quoted_is_text() -> None:
    assert words_of("git log --format='$x; `y`'") == ("git", "log", "--format=$x; `y`")
    assert words_of('git commit -m "a; b > c" x\\;y') == ("git", "commit", "-m", "a; b > c", "x;y")
    assert words_of(["git", "$(x)"]) == ("git", "$(x)")


def test_a_command_is_listed_by_its_first_words() -> None:
    assert is_listed_command(("git", "status", "-s"), ["git status"])
    assert is_listed_command(("git", "push"), ["ls", "git"])
    assert not is_listed_command(("git", "push"), ["git status"])
    assert not is_listed_command(("git",), ["git status"])
    assert not is_listed_command(("/tmp/git", "status"), ["git"])
    assert not is_listed_command(("gitx",), ["git"])
    assert not is_listed_command(("A=1", "git"), ["git"])
    assert not is_listed_command(("git",), ["", " "])


@given(st.text("ab$`;&|<>()#'\"\\ \n=~*?{}!-", max_size=12))
def test_what_is_one_command_here_is_one_command_of_these_words_to_a_shell(text: str) -> None:
    command = f"set -f; set +B; printf '%s\\0' printed {text}"
    try:
        words = words_of(f"printed {text}")
    except ValueError:
        return
    if any(one.startswith("~") or "~" in one for one in words):
        return  # a shell puts a folder in its place, which is one word still
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    assert tuple(done.stdout.decode().split("\0")[:-1]) == words


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=1)
)
def test_words_that_were_quoted_come_back(words: list[str]) -> None:
    assert words_of(shlex.join(words)) == tuple(words)
