# rye:signed:2026-11-28T17:20:55Z:e176b1fe45de584b10813c81f5f2c140aa8289b7007c51db7253083b9342fd3c:H8UeGwNB-X0Q43qpMSSx8AR8cJi-NhpjP7AdFf2MybbM6R7hXd--7HEt2Lvx6ka0TZ_-eVuyUDKklZcjbYhTDg:a50d0ff255b90b74
"""Make a new item from a template: a tool, a directive, a graph or a piece of knowledge.

What is made is unsigned, so nothing of it runs before a person has read and signed it. A file that
stands there is never replaced, and no link is followed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/core"
__tool_description__ = (
    "Make a new item of the project from a template: tool, directive, graph or knowledge. "
    "It is unsigned, and runs once a person has read and signed it."
)

CONFIG_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "kind": {
            "type": "string",
            "enum": ["tool", "directive", "graph", "knowledge"],
            "description": "What to make.",
        },
        "name": {
            "type": "string",
            "pattern": "^[A-Za-z0-9_][A-Za-z0-9_-]*$",
            "maxLength": 100,
            "description": "The last part of its id, such as deploy_app.",
        },
        "category": {
            "type": "string",
            "pattern": "^([A-Za-z0-9_][A-Za-z0-9_-]*(/[A-Za-z0-9_][A-Za-z0-9_-]*)*)?$",
            "maxLength": 200,
            "default": "",
            "description": "The folders of its id, such as workflows or acme/csv.",
        },
        "description": {
            "type": "string",
            "maxLength": 500,
            "default": "",
            "description": "What it is for, in a sentence.",
        },
        "language": {
            "type": "string",
            "enum": ["python", "bash", "javascript"],
            "default": "python",
            "description": "The language of a tool.",
        },
        "instructions": {
            "type": "string",
            "maxLength": 20000,
            "default": "",
            "description": "The instructions of a directive, in Markdown.",
        },
    },
    "required": ["kind", "name"],
    "additionalProperties": False,
}

FOLDERS = {"tool": "tools", "graph": "tools", "directive": "directives", "knowledge": "knowledge"}
SUFFIXES = {"python": ".py", "bash": ".sh", "javascript": ".mjs"}

PYTHON = '''"""{description}"""

__version__ = "1.0.0"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = {category_literal}
__tool_description__ = {description_literal}

CONFIG_SCHEMA = {{
    "type": "object",
    "properties": {{"name": {{"type": "string", "default": "world"}}}},
    "additionalProperties": False,
}}


def execute(params, project_path):
    return {{"greeting": f"Hello, {{params['name']}}!"}}
'''

BASH = """#!/usr/bin/env bash
# __version__ = "1.0.0"
# __executor_id__ = "rye/core/runtimes/bash/bash"
# __category__ = {category_literal}
# __tool_description__ = {description_literal}
# CONFIG_SCHEMA = {{"type": "object", "properties": {{"name": {{"type": "string", "default": "world"}}}}}}

set -euo pipefail

# The project's folder is $1; the parameters come as one JSON object on standard input.
cd "$1"
name=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["name"])')
printf 'Hello, %s!\\n' "$name"
"""

JAVASCRIPT = """// {description}

export const __version__ = "1.0.0";
export const __executor_id__ = "rye/core/runtimes/node/node";
export const __category__ = {category_literal};
export const __tool_description__ = {description_literal};

export const CONFIG_SCHEMA = {{
  type: "object",
  properties: {{ name: {{ type: "string", default: "world" }} }},
  additionalProperties: false,
}};

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const params = JSON.parse(Buffer.concat(chunks).toString());

console.log(JSON.stringify({{ greeting: `Hello, ${{params.name}}!` }}));
"""

GRAPH = """version: "1.0.0"
executor_id: rye/core/runtimes/state-graph/runtime
category: {category_literal}
description: {description_literal}
permissions: [rye.execute.tool.rye.bash]
config:
  start: first
  nodes:
    first:
      action: {{item_id: "tool:rye/bash", params: {{command: "echo hello"}}}}
      next: second
    second:
      action: {{item_id: "tool:rye/bash", params: {{command: "date"}}}}
"""

DIRECTIVE = """# {title}

```xml
<directive name="{name}" version="1.0.0">
  <metadata>
    <description>{description_xml}</description>
    <category>{category}</category>
    <limits turns="8" spend="0.50"/>
    <permissions>
      <execute><tool>rye/file-system/read</tool></execute>
    </permissions>
  </metadata>
  <inputs>
    <input name="topic" required="true">What it is about.</input>
  </inputs>
  <outputs>
    <output name="summary" required="true">What was found, in a few sentences.</output>
  </outputs>
</directive>
```

{instructions}
"""

KNOWLEDGE = """---
title: {title_literal}
description: {description_literal}
tags: []
---

# {title}

{description}
"""


def execute(params: dict[str, object], project_path: str) -> dict[str, object]:
    """Write the file, and return the item's ref, the file and the next steps; see CONFIG_SCHEMA."""
    kind, name, category = (str(params[key]) for key in ("kind", "name", "category"))
    suffix, text = rendered(kind, name, category, params)
    item = f"{category}/{name}" if category else name
    ref = f"{'tool' if kind == 'graph' else kind}:{item}"
    parts = [".ai", FOLDERS[kind], *filter(None, category.split("/"))]
    path = os.path.join(project_path, *parts, name + suffix)
    try:
        write_new(project_path, parts, name, suffix, text.encode())
    except FileExistsError as problem:
        return refused(f"{ref} is there already: {problem.filename}. Choose another name.")
    except NotADirectoryError as problem:
        return refused(
            f"{problem.filename} is a link or a file where a folder is needed. "
            "Remove it, or choose another category."
        )
    except OSError as problem:
        return refused(f"{path} can't be written: {problem.strerror}.")
    return {
        "success": True,
        "item_id": ref,
        "path": path,
        "next_steps": next_steps(kind, ref, path),
    }


def refused(reason: str) -> dict[str, object]:
    """Say why nothing was made."""
    return {"success": False, "error": reason}


def next_steps(kind: str, ref: str, path: str) -> list[str]:
    """What a person does with the new file."""
    if kind == "knowledge":
        return [f"edit {path}", f"rye sign {ref}", f"rye fetch {ref}"]
    run = {"graph": f"rye graph run {ref}", "directive": f"rye execute {ref} topic=TOPIC"}
    return [f"edit {path}", f"rye sign {ref}", run.get(kind, f"rye execute {ref}")]


def rendered(kind: str, name: str, category: str, params: dict[str, object]) -> tuple[str, str]:
    """The file's ending and its text."""
    title = name.replace("_", " ").replace("-", " ").strip().capitalize() or name
    words = " ".join(str(params["description"]).split())
    description = "".join(filter(str.isprintable, words)) or f"{title}: say here what it is for."
    instructions = str(params["instructions"]).strip() or (
        "1. Read what the project has about {input:topic}.\n2. Return a summary of it."
    )
    language = str(params["language"])
    suffix, template = {
        "tool": (
            SUFFIXES[language],
            {"python": PYTHON, "bash": BASH, "javascript": JAVASCRIPT}[language],
        ),
        "graph": (".yaml", GRAPH),
        "directive": (".md", DIRECTIVE),
        "knowledge": (".md", KNOWLEDGE),
    }[kind]
    return suffix, template.format(
        name=name,
        category=category,
        category_literal=json.dumps(category),
        title=title,
        title_literal=json.dumps(title),
        description=re.sub(r'["\\`]', "'", description),
        description_literal=json.dumps(description),
        description_xml=re.sub(r"[<>&`]", "", description),
        instructions=instructions,
    )


def write_new(project_path: str, parts: list[str], name: str, suffix: str, content: bytes) -> None:
    """Write a new file, name by name from the project's folder, without following a link.

    FileExistsError also means an item of this name with another ending; NotADirectoryError, a link
    or a file where a folder is needed.
    """
    folder = os.open(project_path, os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
            below = os.open(part, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        for other in os.listdir(folder):
            if other.partition(".")[0] == name:
                raise FileExistsError(17, "File exists", os.path.join(project_path, *parts, other))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name + suffix, flags, 0o644, dir_fd=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
        except BaseException:
            os.unlink(name + suffix, dir_fd=folder)  # half an item would be in the way
            raise
    finally:
        os.close(folder)
