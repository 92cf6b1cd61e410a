"""The rules of docs/design/templates.md, row by row."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.agent.prompts import PromptTemplate, TemplateMiss
from ryecore.chain.templating import ConfigTemplate
from ryecore.directives.inputs import fill
from ryecore.errors import ConfigError
from ryecore.policy.expressions import BrokenExpression, read_template
from ryecore.policy.hooks import fill_parameters

PAGE = Path(__file__).parents[2] / "docs/design/templates.md"


def rows() -> list[tuple[str, ...]]:
    table = PAGE.read_text().partition("## Each rule by example")[2]
    lines = [line for line in table.splitlines() if line.startswith("| ")][2:]
    cells = [line.replace("\\|", "\0").strip("|").split("|") for line in lines]
    return [tuple(one.strip().strip("`").replace("\0", "|") for one in row) for row in cells]


def render(kind: str, text: str, values: dict[str, Any]) -> object:
    match kind:
        case "graph":
            return read_template(text).value(values)
        case "prompt":
            return anyio.run(PromptTemplate.parse(text).render, values, None)
        case "hook":
            return fill_parameters({"it": text}, values)["it"]
        case "directive":
            return fill(text, values)
    return ConfigTemplate(environ={}, values=values).render(text)


def test_every_kind_has_rows() -> None:
    assert {row[0] for row in rows()} == {"graph", "prompt", "hook", "directive", "chain"}


@pytest.mark.parametrize(("kind", "text", "values", "result"), rows())
def test_each_row_holds(kind: str, text: str, values: str, result: str) -> None:
    if result == "error":
        with pytest.raises((BrokenExpression, ConfigError, TemplateMiss)):
            render(kind, text, json.loads(values))
    else:
        assert render(kind, text, json.loads(values)) == json.loads(result)
