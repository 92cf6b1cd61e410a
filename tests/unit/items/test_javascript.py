import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.items.javascript import JsSyntaxError, read_constants

NAMES = ("__version__", "__executor_id__", "CONFIG", "CONFIG_SCHEMA")
TEXT = st.text(max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT | st.floats(-1e9, 1e9),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXT, below, max_size=3),
    max_leaves=8,
)


def read(source: str) -> dict[str, object]:
    return read_constants(source, NAMES)


def value(literal: str) -> object:
    return read(f"const CONFIG = {literal};\n")["CONFIG"]


def refuse(source: str) -> int:
    with pytest.raises(JsSyntaxError, match="must be a literal") as refused:
        read(source)
    return refused.value.line


@given(VALUES)
def test_json_reads_as_json(tree: object) -> None:
    text = json.dumps(tree)
    if "\\ud" in text:  # half a surrogate pair is no character
        return
    assert value(text) == tree


@pytest.mark.parametrize(
    ("literal", "expected"),
    [
        ("'single'", "single"),
        ('"double"', "double"),
        ("`template`", "template"),
        ("`two\nlines`", "two\nlines"),
        ("`costs $5 {x} $`", "costs $5 {x} $"),
        ("`a \\${x} \\` b`", "a ${x} ` b"),
        ('"http://a.example/b//c"', "http://a.example/b//c"),
        ("'/* no comment */'", "/* no comment */"),
        ('"it\'s"', "it's"),
        ("'say \"hi\"'", 'say "hi"'),
        ("'it\\'s'", "it's"),
        ('"\\n\\t\\r\\b\\f\\v\\0\\\\\\"\\/"', '\n\t\r\b\f\v\0\\"/'),
        ('"\\x41\\u0042\\u{43}\\u{1F600}"', "ABC\U0001f600"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ("'one \\\ntwo'", "one two"),
        ("'a:b,c;d}'", "a:b,c;d}"),
        ("''", ""),
        ("0", 0),
        ("-1.5", -1.5),
        ("+2", 2),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("true", True),
        ("false", False),
        ("null", None),
        ("undefined", None),
        ("[]", []),
        ("{}", {}),
        ("[1, [2, [3]],]", [1, [2, [3]]]),
        ("{a: 1, 'b': 2, \"c\": 3, $d: 4, 5: 6,}", {"a": 1, "b": 2, "c": 3, "$d": 4, "5": 6}),
        ("{\n  // why\n  a: 1, /* and */ b: [2], // done\n}", {"a": 1, "b": [2]}),
        ("{ a: { b: { c: [{ d: 'x' }] } } }", {"a": {"b": {"c": [{"d": "x"}]}}}),
        ("{ true: 1, null: 2, default: 3 }", {"true": 1, "null": 2, "default": 3}),
    ],
)
def test_a_literal_has_the_value_that_javascript_gives_it(literal: str, expected: object) -> None:
    assert value(literal) == expected


@pytest.mark.parametrize(
    "declaration",
    [
        "const CONFIG = 'x';",
        "const CONFIG = 'x'",
        "let CONFIG='x'",
        "var CONFIG = 'x';",
        "export const CONFIG = 'x';",
        "export const CONFIG: string = 'x';",
        "const CONFIG: Record<string, unknown> = 'x';",
        "const CONFIG = 'x' as const;",
        "const CONFIG = 'x' satisfies Text;",
        "const CONFIG = 'x' // why",
        "const CONFIG = 'x' /* why */;",
        "const CONFIG = 'x', other = 2;",
        "const CONFIG =\n  'x';",
        "const CONFIG = 'x'\nconst other = f();",
        "const CONFIG = 'x'\n\nexport default {}",
        "const CONFIG = 'x'\r\nother()\r\n",
        "#!/usr/bin/env node\n// rye:signed:x\n'use strict';\nconst CONFIG = 'x';",
    ],
)
def test_a_declaration_is_read_in_each_of_its_forms(declaration: str) -> None:
    assert read(declaration) == {"CONFIG": "x"}


def test_other_names_are_passed_over() -> None:
    assert read("const other = f();\nconst __version__ = '1';\nconst CONFIGS = 2;\n") == {
        "__version__": "1"
    }


@pytest.mark.parametrize(
    "source",
    [
        "/*\nconst CONFIG = 'x';\n*/",
        "/**\n * text\nconst CONFIG = f();\n */",
        "// const CONFIG = 'x';",
        "const text = `\nconst CONFIG = 'x';\n`;",
        "const text = 'a \\\nconst CONFIG = 1';",
        "  const CONFIG = 'x';",
        "function f() {\n  const CONFIG = 'x';\n}",
        "CONFIG = 'x';",
        "const config = 'x';",
    ],
)
def test_what_is_no_declaration_at_the_top_is_none(source: str) -> None:
    assert read(source) == {}


def test_a_comment_behind_it_changes_no_constant() -> None:
    source = "const CONFIG = 'real';\n/*\nconst CONFIG = 'commented out';\n*/\n"
    assert read(source) == {"CONFIG": "real"}


def test_a_comment_mark_in_a_string_begins_no_comment() -> None:
    source = "const url = 'https://*/';\nconst glob = \"/*\";\nconst CONFIG = 'x';\n// */\n"
    assert read(source) == {"CONFIG": "x"}


@pytest.mark.parametrize(
    "literal",
    [
        "f()",
        "x",
        "new Map()",
        "`a ${x}`",
        "'a' + b",
        "'a'\n  + b",
        "'a'\n  .trim()",
        "'a'.trim()",
        "['a'][0]",
        "['a']\n[0]",
        "{a: 1}.a",
        "1 + 1",
        "1 ? 2 : 3",
        "1 in x",
        "-x",
        "!0",
        "0x1F",
        "10n",
        "1_000",
        "007a",
        "/regex/",
        "{...a}",
        "{[a]: 1}",
        "{a}",
        "{a() {}}",
        "{a: b}",
        "[,]",
        "[1 2]",
        "{a 1}",
        "{'a': 1",
        "[1",
        "'unended",
        "'two\nlines'",
        "'\\u{110000}'",
        "'\\ud800'",
        "9" * 5000,
        "[" * 200 + "]" * 200,
        "",
        "=> 1",
        "async () => 1",
    ],
)
def test_what_is_no_literal_is_refused_with_its_line(literal: str) -> None:
    assert refuse(f"\n\nconst CONFIG = {literal}") >= 3


def test_the_line_is_that_of_the_problem() -> None:
    assert refuse("// one\nconst CONFIG = {\n  a: 1,\n  b: f(),\n};\n") == 4


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "source",
    [
        "const CONFIG = " + "// a " * 20_000,
        "const CONFIG = {" + "/* a */ " * 20_000,
        "const CONFIG: " + "a " * 50_000,
        "const CONFIG = '" + "\\" * 99_999,
        "'" * 100_001,
        "/*" * 20_000,
        "`" + "$" * 100_000,
        "const CONFIG = 1" + " " * 100_000 + "x",
    ],
    ids=range(8),
)
@pytest.mark.timeout(10)
def test_long_nonsense_takes_no_long_time(source: str) -> None:
    with contextlib.suppress(JsSyntaxError):
        read(source)


@given(st.text("const CONFIG=:;{}[]()'\"`\\/*$\n ,.019aé+-", max_size=60))
def test_no_text_raises_anything_but_a_syntax_error(text: str) -> None:
    with contextlib.suppress(JsSyntaxError):
        read("const CONFIG = " + text)


@pytest.mark.parametrize("start", ['const x = "', "const x = '", "const x = `", "/*"])
def test_what_is_never_closed_takes_time_as_it_is_long(start: str) -> None:
    """With the square of it, this would take an hour; the suite's timeout is two minutes."""
    mark = start[-1] if start != "/*" else "/*"
    assert read(start + ("\\" + mark if start != "/*" else mark) * 300_000) == {}
