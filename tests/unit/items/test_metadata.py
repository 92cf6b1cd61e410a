import ast
import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import MetadataError
from ryecore.items.metadata import parse_metadata

KEYS = (
    *("version", "tool_type", "executor_id", "category", "description", "config_schema"),
    *("env_config", "config", "config_resolve", "anchor", "verify_deps", "inputs", "outputs"),
    *("child_constraints", "execution_params", "execution_owner", "native_async"),
    *("native_resume", "file_types", "transport", "permissions"),
)
SEED_CONSTANTS = {
    "__version__": "version",
    "__tool_type__": "tool_type",
    "__executor_id__": "executor_id",
    "__category__": "category",
    "__tool_description__": "description",
    "CONFIG_SCHEMA": "config_schema",
    "ENV_CONFIG": "env_config",
    "CONFIG": "config",
    "CONFIG_RESOLVE": "config_resolve",
    "anchor": "anchor",
    "verify_deps": "verify_deps",
}
SIGNATURE = f"rye:signed:2026-01-01T00:00:00Z:{'0' * 64}:{'A' * 86}:{'0' * 16}"

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=8), below, max_size=3
        )
    ),
    max_leaves=8,
)


def read(content: bytes | str, extension: str = ".py") -> Mapping[str, object]:
    content = content.encode() if isinstance(content, str) else content
    return parse_metadata(content, Path(f"/somewhere/x{extension}"))


def refuse(content: bytes | str, extension: str = ".py") -> MetadataError:
    with pytest.raises(MetadataError) as refused:
        read(content, extension)
    assert refused.value.path == Path(f"/somewhere/x{extension}")
    assert refused.value.next_step == "Mend the file and sign it again."
    return refused.value


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_read_in_every_form(key: str) -> None:
    value = {"a": ["b", 1, True]}
    literal, name = json.dumps(value), f"__{key}__"
    expected = {key: value}
    assert read(f"{name} = {value!r}\n") == expected
    assert read(f"# {name} = {literal}\n", ".sh") == expected
    assert read(f"// {name} = {literal}\n", ".lua") == expected
    assert read(f"export const {name} = {literal};\n", ".js") == expected
    assert read(json.dumps({key: value}), ".json") == expected
    assert read(json.dumps({key: value}), ".yaml") == expected
    assert read(tomli_w.dumps({key: value}), ".toml") == expected


@pytest.mark.parametrize(("name", "key"), SEED_CONSTANTS.items())
def test_the_names_of_constants_stand_for_their_keys(name: str, key: str) -> None:
    assert read(f"{name} = 'x'\n") == {key: "x"}
    assert read(f"# {name} = 'x'\n", ".sh") == {key: "x"}
    assert read(f"const {name} = 'x';\n", ".ts") == {key: "x"}
    assert read(f"{name}: x\n", ".yaml") == {key: "x"}


@given(JSON_VALUES)
def test_a_literal_has_one_value_in_every_form(value: object) -> None:
    text = json.dumps(value)
    assert read(f"CONFIG = {value!r}\n") == {"config": value}
    assert read(f"# CONFIG = {text}\n", ".sh") == {"config": value}
    assert read(f"const CONFIG = {text};\n", ".js") == {"config": value}
    assert read(f'{{"config": {text}}}', ".json") == {"config": value}


# Python


def test_python_is_read_and_never_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    assert read(f"__version__ = '1'\nopen({str(trap)!r}, 'w')\nimport nothing_of_that_name\n") == {
        "version": "1"
    }
    assert not trap.exists()


def test_an_annotated_constant_counts() -> None:
    assert read("__version__: str = '1'\nCONFIG: dict[str, int]\n") == {"version": "1"}


def test_only_constants_of_the_module_count() -> None:
    source = (
        "if True:\n    __version__ = '1'\n"
        "def f():\n    __executor_id__ = 'x'\n"
        "class C:\n    CONFIG = {}\n"
        "a = __category__ = 'x'\n"
        "__inputs__, __outputs__ = [], []\n"
        "text = '''\n__tool_type__ = 'x'\n'''\n"
    )
    assert read(source) == {}


def test_null_and_absent_differ() -> None:
    assert read("__executor_id__ = None\n") == {"executor_id": None}
    assert "executor_id" not in read("__version__ = '1'\n")


def test_literals_of_python_are_understood() -> None:
    assert read("CONFIG = {'a': (1, -2, +3), 'b': 'x' 'y', 'c': None, 'd': 1_000}\n") == {
        "config": {"a": (1, -2, 3), "b": "xy", "c": None, "d": 1000}
    }


@pytest.mark.parametrize(
    "value",
    [
        "compute()",
        "f'{x}'",
        "X",
        "'a' + 'b'",
        "[x for x in y]",
        "{**a}",
        "1 if x else 2",
        "lambda: 1",
        "__import__('os').system('true')",
        "{[]: 1}",
        "not True",
    ],
)
def test_a_known_constant_that_is_no_literal_is_refused_with_its_line(value: str) -> None:
    error = refuse(f"import os\n\n__version__ = {value}\n")
    assert error.line == 3
    assert "line 3: __version__ must be a literal" in error.message


def test_an_unknown_name_may_be_anything() -> None:
    assert read("helper = compute()\n__all__ = names()\n__author__ = f()\n") == {}


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = 1\ndef f(:\n", 2),
        ("x = 1\n\nx = (\n", 3),
        ("  x = 1\n", 1),
        ("x = '\n", 1),
        ("# coding: nonsense\n", None),
        (b"x = '\xff'\n", None),
        ("x = 1\x00\n", None),
        (f"x = {'-' * 200_000}1\n", None),
    ],
)
def test_broken_python_is_refused_with_its_line(source: str | bytes, line: int | None) -> None:
    error = refuse(source)
    assert re.search(r"invalid Python: [^.]", error.message)
    if line is not None:
        assert error.line == line


@pytest.mark.parametrize("source", ["CONFIG = " + "(" * 5000, "CONFIG = " + "-" * 200_000 + "1"])
def test_deep_python_is_refused(source: str) -> None:
    refuse(source)


def test_python_in_another_declared_encoding_is_read() -> None:
    assert read("# coding: latin-1\n__tool_description__ = 'é'\n".encode("latin-1")) == {
        "description": "é"
    }


# A leading comment


@pytest.mark.parametrize("mark", ["#", "//", "--", ";"])
@pytest.mark.parametrize("shebang", ["", "#!/usr/bin/env thing\n"])
def test_a_leading_comment_of_any_form_is_read(mark: str, shebang: str) -> None:
    source = f"{shebang}{mark} {SIGNATURE}\n{mark} Says hello.\n{mark}\n{mark} __version__ = '1'\n"
    assert read(f"{source}\n{mark} __category__ = 'too late'\n", ".lua") == {"version": "1"}


def test_the_comment_ends_where_the_code_begins() -> None:
    assert read("# __version__ = '1'\necho\n# __category__ = 'x'\n", ".sh") == {"version": "1"}
    assert read("\n# __version__ = '1'\n", ".sh") == {}
    assert read("", ".sh") == {}
    assert read("#!/bin/sh", ".sh") == {}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_literal_may_go_on_over_several_lines(end: str) -> None:
    lines = (
        *("#!/bin/sh", "# __version__ = '1'", "# CONFIG_SCHEMA = {", '#   "type": "object",'),
        *(
            '#   "properties": {"path": {"type": "string"}}',
            "# }",
            "# __category__ = 'acme'",
            "echo",
        ),
    )
    assert read(end.join(lines), ".sh") == {
        "version": "1",
        "category": "acme",
        "config_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("# __version__ = $(date)\necho\n", 1),
        ("#!/bin/sh\n# __version__ = '1'\n# CONFIG = {\n# 'a': 1\necho\n", 3),
        ("# CONFIG = {'a': f()}\n", 1),
        ("# __version__ =\necho\n", 1),
        ("# __version__ = 1.2.3\n", 1),
        ("# CONFIG = " + "[" * 5000 + "\n", 1),
    ],
)
def test_a_header_that_is_no_literal_is_refused_with_its_line(source: str, line: int) -> None:
    error = refuse(source, ".sh")
    assert error.line == line
    assert "must be a literal" in error.message


def test_json_and_python_spellings_both_count() -> None:
    assert read("# __executor_id__ = null\n# __native_async__ = True\n", ".sh") == {
        "executor_id": None,
        "native_async": True,
    }


def test_an_equals_sign_in_prose_is_prose() -> None:
    assert read("# Says a = b.\n# version = '1'\n# if x == y\n", ".sh") == {}


def test_only_a_line_feed_ends_a_line() -> None:
    """A form feed or a line separator is no line end to a shell, so it is none here."""
    source = "# __tool_description__ = 'a\u2028b\x0cc'\n# __version__ = '1'\n"
    assert read(source, ".sh") == {"description": "a\u2028b\x0cc", "version": "1"}
    assert read("# a\u2028# __version__ = '1'\n", ".sh") == {}


def test_bytes_that_are_no_text_are_no_error_in_a_header() -> None:
    assert read(b"# \xff\n# __version__ = '1'\n", ".sh") == {"version": "1"}


# Documents


def test_a_signed_document_reads_like_an_unsigned_one() -> None:
    assert read(f"# {SIGNATURE}\nversion: '1'\n", ".yaml") == {"version": "1"}
    assert read(f"# {SIGNATURE}\nversion = '1'\n", ".toml") == {"version": "1"}


def test_keys_of_its_own_stay_in_a_document() -> None:
    assert read("version: '1'\nmine: {x: 1}\n", ".yaml") == {"version": "1", "mine": {"x": 1}}


def test_broken_documents_and_scripts_are_metadata_errors_with_a_line() -> None:
    assert refuse("a: [\n", ".yaml").line == 2
    assert refuse("a = \n", ".toml").line == 1
    assert refuse("{", ".json").line == 1
    assert refuse("const CONFIG = f();\n", ".js").line == 1


@given(
    st.binary(max_size=80), st.sampled_from([".py", ".sh", ".js", ".ts", ".rb", ".json", ".yaml"])
)
def test_no_bytes_raise_anything_but_a_metadata_error(content: bytes, extension: str) -> None:
    with contextlib.suppress(MetadataError):
        read(content, extension)


def test_the_system_s_own_tools_read_the_same_by_hand() -> None:
    root = Path(__file__).parents[3] / "src/ryecore/system/.ai/tools"
    for path in root.rglob("*.py"):
        found = parse_metadata(path.read_bytes(), path)
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name in SEED_CONSTANTS:
                    assert found[SEED_CONSTANTS[name]] == ast.literal_eval(node.value), path


def test_a_warning_of_the_authors_code_is_no_error_where_the_host_makes_errors_of_them() -> None:
    content = b'__version__ = "1.0.0"\nPATTERN = "\\d"\n'
    with pytest.raises(SyntaxError):
        compile(content, "tool.py", "exec", ast.PyCF_ONLY_AST)  # as this test run is set up
    assert parse_metadata(content, Path("tool.py")) == {"version": "1.0.0"}
