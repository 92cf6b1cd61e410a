"""A graph's process is killed while it pays; the run is resumed, and nothing is done twice."""

import tempfile
from pathlib import Path

import anyio

from ryecore import Rye
from ryecore.errors import StateError

GRAPH = """
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.bills.*]
config:
  start: check
  state: {amount: 0, paid: null}
  nodes:
    check: {action: {item_id: "tool:bills/check"}, assign: {amount: "${result.amount}"}, next: pay}
    pay: {action: {item_id: "tool:bills/pay"}, assign: {paid: "${result.paid}"}, next: done}
    done: {type: return, output: {amount: "${state.amount}", paid: "${state.paid}"}}
"""
TOOLS = {
    "check.sh": """echo checked >> "$1/book.txt"; echo '{"amount": 120}'""",
    # The graph's process dies here, before the result is recorded.
    "pay.sh": """echo paid >> "$1/book.txt"; kill -9 $PPID; echo '{"paid": true}'""",
}


async def main(project: Path) -> None:
    (place := project / ".ai/tools/bills").mkdir(parents=True)
    (place / "settle.yaml").write_text(GRAPH)
    for name, script in TOOLS.items():
        (place / name).write_text(f'# __executor_id__ = "rye/core/runtimes/bash/bash"\n{script}\n')
    book = project / "book.txt"

    async with Rye.open(project, user_space=project) as rye:
        rye.keys.generate("the example")
        rye.sign("tool:bills/*")
        print("1. It runs in a process of its own, which is killed\n")
        print(await rye.execute("tool:bills/settle"))

        print("\n2. Whether it has paid can't be known, so it doesn't pay again by itself\n")
        run = (await rye.threads.list(all=True))[0]
        try:
            await rye.graphs.resume(run.thread_id)
        except StateError as refusal:
            print(f"  {refusal.message}\n  next: {refusal.next_step}")

        print("\n3. Its author looks, says what came of it, and it goes on behind that\n")
        is_paid = "paid" in book.read_text().split()
        done = await rye.graphs.resume(run.thread_id, result={"paid": is_paid})
        print(done, done.output, book.read_text(), sep="\n")


with tempfile.TemporaryDirectory() as folder:
    anyio.run(main, Path(folder))
