"""Configuration: every problem with its file, its line and its keys."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import pytest
from attrs import frozen

from ryecore.convert.config import CONFIG, ConfigFile, ConfigProblem, Configuration, Reader, between
from ryecore.convert.strict import ConversionError
from ryecore.errors import ConfigError
from ryecore.items.documents import parse_document


@frozen
class Tries:
    attempts: Annotated[int, between(1, 10)] = 3
    wait_s: Annotated[float, between(0, 60)] = 1.0


@frozen
class File:
    kind: Literal["fast", "slow"]
    tries: Mapping[Literal["read", "write"], Tries | None] = {}
    names: tuple[Annotated[str, Reader(lambda value: str(value).upper())], ...] = ()
    quiet: bool = False


def problems(text: str) -> list[tuple[int | None, str, str]]:
    configuration = Configuration.of("a.yaml", parse_document(text.encode(), Path("a.yaml")), text)
    with pytest.raises(ConfigError) as refusal:
        configuration.read(File)
    found: tuple[ConfigProblem, ...] = refusal.value.facts["problems"]  # type: ignore[assignment]
    assert all(str(one).rstrip("?") in refusal.value.message for one in found)
    return [(one.line, ".".join(map(str, one.place)), one.message) for one in found]


def test_a_file_is_read_as_its_class() -> None:
    values = {"kind": "fast", "tries": {"read": {"wait_s": 2}, "write": None}, "names": ["a", 3]}
    assert Configuration.of("a.yaml", values).read(File) == File(
        "fast", {"read": Tries(3, 2.0), "write": None}, ("A", "3")
    )


def test_a_number_that_no_float_holds_is_a_problem() -> None:
    with pytest.raises(ConversionError) as refusal:
        CONFIG.read(10**400, float)
    assert [one.message for one in refusal.value.problems] == ["is too large a number"]


@pytest.mark.parametrize("value", ["x" * 5000, 10**4000, ["x" * 5000], {"x" * 1000: "x" * 5000}])
@pytest.mark.parametrize("key", ["kind", "tries", "quiet", "x" * 1000])
def test_a_long_value_is_not_quoted_whole(key: str, value: object) -> None:
    for values in ({"kind": "fast", key: value}, {"kind": "fast", "tries": {"read": value}}):
        with pytest.raises(ConfigError) as refusal:
            Configuration.of("a.yaml", values).read(File)
        assert "x" * 101 not in refusal.value.message
        assert len(refusal.value.message) < 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("quiet: true\n", (None, "kind", "is missing")),
        (
            "kind: fats\n",
            (1, "kind", "must be one of fast, slow, not 'fats'. Did you mean 'fast'?"),
        ),
        ("kind: fast\nquite: true\n", (2, "quite", "is unknown. Did you mean 'quiet'?")),
        (
            "kind: fast\nx: 1\n",
            (2, "x", "is unknown. Known: kind, tries, names, quiet."),
        ),
        ("kind: fast\nquiet: 1\n", (2, "quiet", "must be true or false, not 1")),
        (
            "kind: fast\ntries:\n  read: {attempts: '1'}\n",
            (3, "tries.read.attempts", "must be a whole number, not '1'"),
        ),
        (
            "kind: fast\ntries:\n  read:\n    attempts: true\n",
            (4, "tries.read.attempts", "must be a whole number, not true"),
        ),
        (
            "kind: fast\ntries:\n  read:\n    wait_s: .inf\n",
            (4, "tries.read.wait_s", "must be a finite number, not inf"),
        ),
        ("kind: fast\ntries: []\n", (2, "tries", "must be a mapping, not a list")),
        ("kind: fast\ntries: {read: 3}\n", (2, "tries.read", "must be a mapping, not 3")),
        ("kind: fast\nnames: a\n", (2, "names", "must be a list, not 'a'")),
        (
            f"kind: fast\ntries: {{read: {{attempts: 0x{'f' * 5000}}}}}\n",
            (2, "tries.read.attempts", "must be from 1 to 10, not a larger number"),
        ),
    ],
)
def test_a_problem_has_its_line_its_keys_and_a_guess(
    text: str, expected: tuple[int | None, str, str]
) -> None:
    assert problems(text) == [expected]


def test_all_problems_are_listed_at_once() -> None:
    found = problems("kind: 1\nquiet: 1\nnames: 1\ntries: {read: {attempts: 0, wait_s: -1}}\n")
    assert [place for _, place, _ in found] == [
        "kind", "tries.read.attempts", "tries.read.wait_s", "names", "quiet",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "written"),
    [("1", "1"), ("true", "true"), ("null", "null"), ("1.5", "1.5"), ("2020-01-01", "2020-01-01")],
)
def test_a_key_that_is_no_text_is_unknown_beside_others(key: str, written: str) -> None:
    found = problems(f"kind: fast\ntries:\n  read:\n    z: 1\n    {key}: 2\n  {key}: {{}}\n")
    assert {(place, message.partition(".")[0]) for _, place, message in found} == {
        (f"tries.{written}", f"must be one of read, write, not {written.partition('.')[0]}"),
        (f"tries.read.{written}", "is unknown"),
        ("tries.read.z", "is unknown"),
    }


def test_an_error_shows_the_beginning_of_a_long_key() -> None:
    configuration = Configuration.of("a.yaml", {"x" * 1_000_000: 1, "kind": "fast"})
    with pytest.raises(ConfigError, match=r"^a\.yaml: xxx.*… is unknown") as refusal:
        configuration.read(File)
    assert len(str(refusal.value)) < 500


def test_a_problem_is_located_in_the_nearest_file_that_holds_its_key() -> None:
    user, project = "kind: fast\nquiet: 1\n", "\ntries: {read: {attempts: 0}}\n"
    files = [
        ConfigFile(name, parse_document(text.encode(), Path("a.yaml")), text.encode())
        for name, text in (("user.yaml", user), ("project.yaml", project))
    ]
    merged = {**files[0].values, **files[1].values}
    with pytest.raises(ConfigError) as refusal:
        Configuration(merged, tuple(files)).read(File)
    found: tuple[ConfigProblem, ...] = refusal.value.facts["problems"]  # type: ignore[assignment]
    assert {(one.file, one.line) for one in found} == {("user.yaml", 2), ("project.yaml", 2)}


def test_what_reads_no_configuration_loads_no_cattrs() -> None:
    program = "import sys, ryecore.rye, ryecore.cli.execute; print('cattrs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"False"
