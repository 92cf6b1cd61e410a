import contextlib
import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ryecore.errors import MetadataError
from ryecore.items.documents import MAX_DEPTH, parse_document

TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\uffff\ufffe")
)
LEAVES = st.one_of(st.booleans(), st.integers(-(2**60), 2**60), TEXT)
TREES = st.dictionaries(
    TEXT,
    st.recursive(
        LEAVES, lambda below: st.lists(below) | st.dictionaries(TEXT, below), max_leaves=9
    ),
    max_size=4,
)


def parse(content: bytes | str, extension: str = ".yaml") -> dict[str, object]:
    content = content.encode() if isinstance(content, str) else content
    return parse_document(content, Path(f"/somewhere/x{extension}"))


def refuse(content: bytes | str, extension: str = ".yaml") -> MetadataError:
    with pytest.raises(MetadataError) as refused:
        parse(content, extension)
    error = refused.value
    assert error.path == Path(f"/somewhere/x{extension}")
    assert str(error.path) in error.message
    assert error.next_step == "Mend the file and sign it again."
    if error.line is not None:
        assert f"line {error.line}:" in error.message
    return error


@given(TREES)
def test_a_document_reads_as_it_was_written(tree: dict[str, object]) -> None:
    assert parse(json.dumps(tree), ".json") == tree
    assert parse(tomli_w.dumps(tree), ".toml") == tree
    assert parse(json.dumps(tree, ensure_ascii=False), ".yaml") == tree
    assert parse(json.dumps(tree, ensure_ascii=False), ".yml") == tree


@pytest.mark.parametrize("extension", [".yaml", ".toml"])
@pytest.mark.parametrize("content", ["", "\n", "# only a comment\n"])
def test_an_empty_document_is_an_empty_mapping(extension: str, content: str) -> None:
    assert parse(content, extension) == {}


@pytest.mark.parametrize(
    ("content", "extension", "line", "says"),
    [
        ("a: 1\nb: [\n", ".yaml", 3, "YAML"),
        ("a: 1\na: 2\n", ".yaml", 2, 'duplicate key "a"'),
        ("a:\n  b: 1\n  b: 1\n", ".yaml", 3, 'duplicate key "b"'),
        ("a:\n\t- b\n", ".yaml", 2, "cannot start any token"),
        ("a: 1\n b: 2\n", ".yaml", 2, "YAML"),
        ("a: 1\n---\nb: 2\n", ".yaml", 2, "another document"),
        ("a: 1\nb: *nowhere\n", ".yaml", 2, "undefined alias"),
        ("a: 1\nb: !!python/object/apply:os.system [true]\n", ".yaml", 2, "python/object"),
        ("a: !!python/name:os.system\n", ".yaml", 1, "python/name"),
        ("a: !!python/module:os\n", ".yaml", 1, "python/module"),
        ("a: !mine x\n", ".yaml", 1, "!mine"),
        ("a = 1\nb = = 2\n", ".toml", 2, "TOML"),
        ("a = 1\na = 2\n", ".toml", 2, "TOML"),
        ("a = 1\nb = [", ".toml", 2, "TOML"),
        ('{"a": 1,\n "b": }', ".json", 2, "JSON"),
        ('{"a": 1,}', ".json", 1, "JSON"),
        ("", ".json", 1, "JSON"),
        ("- a\n", ".yaml", 1, "not a mapping"),
        ("text\n", ".yaml", 1, "not a mapping"),
        ("1: a\n", ".yaml", 1, "text keys"),
        ("? [a]\n: 1\n", ".yaml", 1, "text keys"),
        ("[1]", ".json", 1, "not a mapping"),
        (b"a: 1\nb: \xff\n", ".yaml", 2, "not UTF-8"),
        (b'{"a":\n\n"\xe9"}', ".json", 3, "not UTF-8"),
        (b"a = '\xff'\n", ".toml", 1, "not UTF-8"),
    ],
)
def test_what_is_broken_is_said_with_its_line(
    content: bytes | str, extension: str, line: int, says: str
) -> None:
    error = refuse(content, extension)
    assert error.line == line
    assert says in error.message


@pytest.mark.parametrize(
    ("content", "extension"),
    [
        ("a: !!int abc\n", ".yaml"),
        ("a: !!float abc\n", ".yaml"),
        ("a: !!bool abc\n", ".yaml"),
        ("a: !!timestamp abc\n", ".yaml"),
        ("a: !!binary abc\n", ".yaml"),
        ("a: !!int ''\n", ".yaml"),
        ("a: 2024-13-45\n", ".yaml"),
        ("a: {? {b: 1} : 1}\n", ".yaml"),
        ('a: "\\ud800"\n', ".yaml"),
        ("a: '\x00'\n", ".yaml"),
        ("a: " + "9" * 5000, ".yaml"),
        ("a = " + "9" * 5000, ".toml"),
        ('{"a": ' + "9" * 5000 + "}", ".json"),
    ],
)
def test_a_value_that_cannot_be_is_refused_like_any_broken_document(
    content: str, extension: str
) -> None:
    error = refuse(content, extension)
    assert f"broken {extension[1:].upper()}: " in error.message
    assert error.line in (1, None)


@given(st.binary(max_size=60), st.sampled_from([".yaml", ".toml", ".json"]))
def test_no_bytes_raise_anything_but_a_metadata_error(content: bytes, extension: str) -> None:
    with contextlib.suppress(MetadataError):
        assert isinstance(parse(content, extension), dict)


@given(
    st.lists(
        st.sampled_from(
            [
                *("a", ":", " ", "\n", "- ", "[", "]", "{", "}", "&x ", "*x", "!!int ", "!!str "),
                *("<<", "'", '"', "|\n", ">", "? ", "---\n", "#", "1", "2024-01-32", "~", ","),
                "%YAML 1.1\n",
            ]
        ),
        max_size=14,
    ).map("".join)
)
def test_no_yaml_raises_anything_but_a_metadata_error(content: str) -> None:
    with contextlib.suppress(MetadataError):
        assert isinstance(parse(content), dict)


def nest(depth: int, extension: str) -> str:
    inner = "[" * (depth - 1) + "1" + "]" * (depth - 1)
    return {".toml": f"a = {inner}", ".json": f'{{"a": {inner}}}'}.get(extension, f"a: {inner}")


@pytest.mark.parametrize("extension", [".yaml", ".toml", ".json"])
def test_nesting_has_a_bound_that_is_the_same_in_every_form(extension: str) -> None:
    assert parse(nest(MAX_DEPTH, extension), extension)
    assert "nested too deeply" in refuse(nest(MAX_DEPTH + 1, extension), extension).message


@pytest.mark.parametrize("extension", [".yaml", ".toml", ".json"])
@pytest.mark.parametrize("closed", [True, False])
def test_very_deep_nesting_does_not_end_the_process(extension: str, closed: bool) -> None:
    """In a process of its own, because a stack that overflows takes the whole process with it."""
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from ryecore.errors import MetadataError\n"
        "from ryecore.items.documents import parse_document\n"
        "try:\n"
        f"    parse_document(sys.stdin.buffer.read(), Path('x{extension}'))\n"
        "except MetadataError as error:\n"
        "    print(error)\n"
    )
    content = nest(200_000, extension)
    content = content if closed else content.partition("1")[0]
    done = subprocess.run(
        [sys.executable, "-c", script], input=content.encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert b"nested too deeply" in done.stdout


def test_deep_block_yaml_is_refused_too() -> None:
    blocks = "\n".join(" " * depth + "a:" for depth in range(500))
    assert "nested too deeply" in refuse(blocks).message
    # YAML has more line ends than a line feed.
    for end in ("\n", "\r", "\x85", "\u2028"):
        assert "nested too deeply" in refuse(f"a:{end} {'- ' * 500}x{end}").message
        assert "nested too deeply" in refuse(blocks.replace("\n", end)).message


def bomb(levels: int, width: int = 9) -> str:
    lines = ["a0: &a0 [x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]")
    return "\n".join(lines)


def test_aliases_that_stand_for_too_much_are_refused() -> None:
    error = refuse(bomb(12))
    assert "too many nodes" in error.message
    assert error.line is not None


def test_a_bomb_of_merge_keys_is_refused() -> None:
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40)]
    assert "too many nodes" in refuse("\n".join(lines)).message


def test_aliases_that_nest_too_deeply_are_refused() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, MAX_DEPTH + 5)]
    assert "nested too deeply" in refuse("\n".join(lines)).message


@pytest.mark.parametrize("content", ["a: &x [*x]\n", "a: &x {b: *x}\n", "a: &x\n- b: [*x]\n"])
def test_an_alias_within_itself_is_refused(content: str) -> None:
    assert "the alias *x stands inside itself" in refuse(content).message


def test_ordinary_aliases_and_merges_work() -> None:
    content = "base: &b {x: 1, y: 2}\none: {<<: *b, y: 3}\ntwo: [*b, *b]\n"
    base = {"x": 1, "y": 2}
    assert parse(content) == {"base": base, "one": {"x": 1, "y": 3}, "two": [base, base]}


def test_a_large_plain_document_is_no_bomb() -> None:
    document = {"rows": [[n, n] for n in range(2000)]}
    assert parse(json.dumps(document)) == document


@given(TREES)
def test_what_ruamel_writes_reads_back(tree: dict[str, object]) -> None:
    out = StringIO()
    YAML(typ="safe").dump(tree, out)
    assert parse(out.getvalue()) == tree


@given(
    st.lists(
        st.sampled_from(
            [
                *("yes", "on", "true", "False", "~", "null", "", "0o17", "017", "0x1F", "0b11"),
                *("1_000", "1:30", "-.inf", ".nan", "1e3", "+1.5E-2", "2024-01-31", "=", "<<"),
                *(
                    "2024-01-31 10:20:30.5 +1",
                    "'1'",
                    '"on"',
                    "!!str 1",
                    "!!float 1",
                    "!!set {a, b}",
                ),
                *("!!binary aGk=", "!!omap [a: 1]", "!!pairs [a: 1]", "&x {b: 1}", "*x", "!!int x"),
                *("{<<: *x, c: 2}", "{=: 1}", "[1, on]", "? [1]", "{d: 1, d: 2}", "|\n    text"),
            ]
        ),
        max_size=6,
    ),
    st.sampled_from(["", "%YAML 1.1\n---\n", "%YAML 1.2\n---\n"]),
)
def test_every_value_is_what_ruamels_own_loader_makes_of_it(values: list[str], head: str) -> None:
    content = head + "".join(f"k{at}: {value}\n" for at, value in enumerate(values))
    try:
        expected = YAML(typ="safe").load(content) or {}
    except (YAMLError, ValueError, LookupError, TypeError, AttributeError):
        refuse(content)
    else:
        assert _spelled(parse(content)) == _spelled(expected)


def _spelled(value: object) -> str:
    """A value as text that tells 1 from True and from 1.0, whatever order its sets have."""
    if isinstance(value, set):
        return f"set({', '.join(sorted(map(_spelled, value)))})"
    if isinstance(value, dict):
        rows = (f"{_spelled(key)}: {_spelled(one)}" for key, one in value.items())
        return f"{type(value).__name__}({', '.join(rows)})"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(_spelled, value))})"
    return repr(value)


def test_who_changes_a_document_changes_no_other_reading_of_it() -> None:
    first = parse_document(b"a: [1, {b: 2}]", Path("x.yaml"))
    assert isinstance(first["a"], list)
    first["a"][1]["b"] = 3
    assert parse_document(b"a: [1, {b: 2}]", Path("x.yaml")) == {"a": [1, {"b": 2}]}


def test_no_folder_is_searched_for_plug_ins_of_the_yaml_package(monkeypatch):
    parse("warm: up")
    monkeypatch.delattr("os.scandir")
    assert parse("title: A note that nobody has read before") == {
        "title": "A note that nobody has read before"
    }
