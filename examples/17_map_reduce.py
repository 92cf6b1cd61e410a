"""A graph that maps a signed tool over files, several at once, and has an agent reduce the answers.

A scripted model answers; with ANTHROPIC_API_KEY and ryecore[anthropic,prices], the real one does.
"""

import os
import tempfile
from pathlib import Path

import anyio

from ryecore import AgentRunnerDeps, Rye
from ryecore.llm import Price, Usage
from ryecore.testing import ScriptedProvider, say

if KEY := os.environ.get("ANTHROPIC_API_KEY", ""):
    from ryecore.providers.anthropic import AnthropicProvider
PRICE = None if KEY else Price(input="3", output="15")
GRAPH = """
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.notes.*]
config:
  start: map
  state: {todo: [], first: ""}
  agents: {editor: {provider: anthropic, model: claude-sonnet-4-5, system_prompt: Be brief.}}
  nodes:
    map: {type: foreach, over: "${inputs.files}", as: file, parallel: true, collect: todo,
          action: {item_id: "tool:notes/todo", params: {path: "${file}"}}, next: reduce}
    reduce: {type: agent, agent_ref: editor, assign: {first: "${result.first}"}, next: done,
             prompt_template: "Which of these is to be done first? {{ run.outputs.todo | json }}",
             output_schema: {type: object, properties: {first: {type: string}}, required: [first]}}
    done: {type: return, output: {todo: "${state.todo}", first: "${state.first}"}}
"""
TODO = """__executor_id__ = "rye/core/runtimes/python/function"
def execute(params, project_path):
    return [line for line in open(params["path"]).read().splitlines() if line[:4] == "TODO"]
"""
NOTES = {"a.txt": "Sun.\nTODO mend the roof\n", "b.txt": "TODO paint it\nRain.\nTODO dig\n"}


async def main(project: Path) -> None:
    script = ScriptedProvider([say('{"first": "mend the roof"}')], usage=Usage(120, 30))
    model = AnthropicProvider() if KEY else script
    deps = AgentRunnerDeps(
        resolve_provider=lambda _: model, key_for=lambda _: KEY, price_of=lambda *_: PRICE
    )
    async with Rye.open(project, user_space=project, agent=deps) as rye:
        rye.keys.generate("the example")
        rye.sign("tool:notes/*")
        done = await rye.graphs.run("tool:notes/digest", {"files": [*NOTES]})
        print(done, done.output, sep="\n")


with tempfile.TemporaryDirectory() as folder:
    (tools := Path(folder, ".ai/tools/notes")).mkdir(parents=True)
    for path, text in {tools / "digest.yaml": GRAPH, tools / "todo.py": TODO, **NOTES}.items():
        Path(folder, path).write_text(text)
    anyio.run(main, Path(folder))
