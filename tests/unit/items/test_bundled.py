"""The table of the bundle's parsed documents."""

from pathlib import Path

import pytest

from ryecore.errors import MetadataError
from ryecore.items.bundled import DOCUMENTS_PATH, find_document, render_documents
from ryecore.items.documents import DOCUMENT_EXTENSIONS, parse_content, parse_document
from ryecore.items.metadata import parse_metadata, parse_python
from ryecore.items.seal import parsed_documents

BUNDLE = DOCUMENTS_PATH.parent / ".ai"
FILES = [path for path in BUNDLE.rglob("*") if path.suffix in DOCUMENT_EXTENSIONS]
TOOLS = sorted((BUNDLE / "tools/rye").glob("*.py"))


def test_the_table_is_that_of_the_bundle() -> None:
    """Where it isn't: make seal."""
    assert DOCUMENTS_PATH.read_bytes() == parsed_documents(BUNDLE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_document_is_found_as_it_is_read(path: Path) -> None:
    content = path.read_bytes()
    found = find_document(content, path.suffix)
    assert found == parse_content(content, path)
    assert found == parse_document(content, Path("elsewhere") / path.name)
    assert repr(found) == repr(parse_content(content, path))  # 1 is not True, nor 1.0


@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.stem)
def test_the_metadata_of_a_tool_is_found_as_it_is_read(path: Path) -> None:
    content = path.read_bytes()
    assert find_document(content, ".py") is not None
    assert repr(parse_metadata(content, path)) == repr(parse_python(content, path))
    changed = content.replace(b'__version__ = "1.0.0"', b'__version__ = "1.0.1"')
    assert parse_metadata(changed, path)["version"] == "1.0.1"


def test_what_is_found_is_the_callers_own() -> None:
    content = FILES[0].read_bytes()
    found = find_document(content, FILES[0].suffix)
    assert found is not None
    found.clear()
    assert find_document(content, FILES[0].suffix)


def test_no_other_content_and_no_other_form_is_found() -> None:
    (path,) = (path for path in FILES if path.name == "script.yaml")
    content = path.read_bytes()
    assert find_document(content, ".toml") is None
    with pytest.raises(MetadataError):
        parse_document(content, path.with_suffix(".toml"))
    changed = content.replace(b'version: "1.0.0"', b'version: "1.0.1"')
    assert find_document(changed, ".yaml") is None
    assert parse_document(changed, path)["version"] == "1.0.1"


def test_what_json_cant_hold_is_left_out() -> None:
    kept = {(b"a", ".yaml"): {"a": [1, 1.5, True, None, "ü"]}}
    left_out = {
        (b"b", ".yaml"): {"b": float("nan")},
        (b"c", ".yaml"): {"c": Path("c")},
        (b"d", ".yaml"): {"d": (1,)},
    }
    assert render_documents(kept | left_out) == render_documents(kept) != render_documents({})
