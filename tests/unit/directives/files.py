"""Directive files for tests."""

from pathlib import Path

from ryecore.directives.model import Directive
from ryecore.directives.parser import parse_directive

PATH = Path("/p/.ai/directives/acme/tides.md")


def file(inside: str = "", *, metadata: str = "", body: str = "Do it.", extends: str = "") -> str:
    """A directive called tides; `inside` stands beside its metadata, which begins on line 5."""
    root = f' extends="{extends}"' if extends else ""
    return (
        "# Tides\n\n```xml\n"
        f'<directive name="tides" version="1.0.0"{root}>\n'
        f"<metadata>{metadata}</metadata>\n{inside}\n</directive>\n```\n\n{body}\n"
    )


def parse(content: str | bytes, path: Path = PATH) -> Directive:
    """Read a directive's file."""
    return parse_directive(content.encode() if isinstance(content, str) else content, path)
