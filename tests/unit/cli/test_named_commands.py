"""Every command that a next step names is one that there is."""

import re
from pathlib import Path

import click

import ryecore
from ryecore.cli.commands import rye


def test_each_command_of_threads_that_is_named_anywhere_is_there() -> None:
    root = Path(ryecore.__file__).parent
    texts = [path.read_text() for path in root.rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"rye threads ([a-z][a-z-]+)", text)}
    threads = rye.get_command(click.Context(rye), "threads")
    assert isinstance(threads, click.Group)
    assert named
    assert named <= set(threads.commands)
