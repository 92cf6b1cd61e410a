"""What the system says of its tools, which is read without running them."""

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.unit.system.tools import FILE_SYSTEM, FILE_TOOLS, RYE

TOOLS = [
    RYE / "bash.py",
    RYE / "core/create.py",
    *(FILE_SYSTEM / f"{name}.py" for name in FILE_TOOLS),
]


def literals(path: Path) -> dict[str, Any]:
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name.startswith("__") or name in ("CONFIG_SCHEMA", "CONFIG_RESOLVE"):
                found[name] = ast.literal_eval(node.value)
    return found


@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.stem)
def test_metadata_is_literal_and_whole(path: Path) -> None:
    found = literals(path)
    assert found["__version__"] == "1.0.0"
    assert found["__tool_type__"] == "python"
    assert found["__tool_description__"].endswith(".")
    assert found["__category__"] == str(path.parent.relative_to(RYE.parent))
    runtime = "script" if path.stem == "bash" else "function"
    assert found["__executor_id__"] == f"rye/core/runtimes/python/{runtime}"


@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.stem)
def test_tools_that_change_nothing_say_so(path: Path) -> None:
    reads = path.stem in ("read", "list", "glob", "grep")
    assert literals(path).get("__hints__") == ({"read_only": True} if reads else None)


@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.stem)
def test_schema_is_closed_described_and_bounded(path: Path) -> None:
    schema = literals(path)["CONFIG_SCHEMA"]
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["additionalProperties"] is False
    assert set(schema.get("required", [])) <= set(schema["properties"])
    for name, rule in schema["properties"].items():
        assert rule["description"].endswith("."), name
        bounds = {"string": {"maxLength", "enum"}, "integer": {"maximum"}, "number": {"maximum"}}
        wanted = bounds.get(rule["type"])
        # An offset has no upper bound: a file may have any number of lines.
        assert name == "offset" or not wanted or wanted & set(rule), name
        assert (
            ("default" in rule) or (name in schema["required"]) or name in ("glob", "working_dir")
        )


@pytest.mark.parametrize("name", FILE_TOOLS)
def test_access_comes_from_signed_config_alone(name: str) -> None:
    found = literals(FILE_SYSTEM / f"{name}.py")
    assert found["CONFIG_RESOLVE"] == {
        "path": "file-system/access.yaml",
        "mode": "deep_merge",
        "signed": True,
    }
    assert not {"roots", "writable_roots", "resolved_config"} & set(
        found["CONFIG_SCHEMA"]["properties"]
    )


def test_the_folder_is_an_anchor() -> None:
    assert (FILE_SYSTEM / "__init__.py").is_file()
