"""Unit tests lie where the source lies that they test."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests/unit"
ELSEWHERE = {"runtimes": "system/.ai/tools/rye/core/runtimes"}
"""Folders of tests whose source has another path."""


def test_each_folder_of_unit_tests_is_named_as_a_room_or_module_of_the_source() -> None:
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")} - {Path()}
    source = ROOT / "src/ryecore"
    strays = [
        str(folder)
        for folder in sorted(folders)
        if not (source / ELSEWHERE.get(str(folder), folder)).is_dir()
        and not (source / folder).with_suffix(".py").is_file()
    ]
    assert strays == []
