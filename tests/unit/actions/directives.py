"""Short ways to write directives and to look at their dry runs."""

from pathlib import Path
from typing import Any

from ryecore.actions.directive import DirectiveResult
from tests.workspace import Workspace

TOPIC = """<inputs><input name="topic" required="true"/>
<input name="n" type="integer" default="3"/></inputs>"""


def write(
    workspace: Workspace,
    item_id: str = "acme/research",
    inside: str = TOPIC,
    *,
    metadata: str = "",
    body: str = "Research {input:topic} in {input:n} steps.",
    extends: str = "",
    **options: Any,
) -> Path:
    """Write a directive, and sign it."""
    name = item_id.rpartition("/")[2]
    root = f' extends="{extends}"' if extends else ""
    text = (
        f'# {name}\n\n```xml\n<directive name="{name}" version="1.0.0"{root}>\n'
        f"<metadata>{metadata}</metadata>\n{inside}\n</directive>\n```\n\n{body}\n"
    )
    return workspace.write(f"directives/{item_id}.md", text, **options)


def plan(workspace: Workspace, item_id: str = "acme/research", **options: Any) -> dict[str, Any]:
    done = workspace.execute(f"directive:{item_id}", {"topic": "x"}, dry_run=True, **options)
    assert isinstance(done, DirectiveResult)
    return done.to_dict()
