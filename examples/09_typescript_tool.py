"""A tool in TypeScript, run by tsx. To have tsx: npm install tsx, in a folder of your own."""

import os
import shutil
import tempfile
from pathlib import Path

from ryecore import SyncRye
from ryecore.errors import ContentChanged

TOOL = """\
const __version__: string = "1.0.0";
const __executor_id__: string = "rye/core/runtimes/node/node";
const __tool_description__: string = "How far it is between two points.";

import { readFileSync } from "node:fs";
import { distance, type Point } from "./geometry";

const { from, to }: { from: Point; to: Point } = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify({ distance: distance(from, to) }));
"""

GEOMETRY = """\
export interface Point { x: number; y: number }
export const distance = (a: Point, b: Point): number => Math.hypot(a.x - b.x, a.y - b.y);
"""


def main() -> None:
    tsx = os.environ.get("RYE_NODE") or shutil.which("tsx")
    if tsx is None:
        print("There is no tsx: npm install tsx, then RYE_NODE=.../node_modules/.bin/tsx")
        return
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "shop")
        tools = project / ".ai/tools/acme"
        tools.mkdir(parents=True)
        # package.json makes the folder importable. It decides what is loaded, so it is signed too.
        files = {"far.ts": TOOL, "geometry.ts": GEOMETRY, "package.json": '{"type": "module"}'}
        for name, content in files.items():
            (tools / name).write_text(content)

        environ = {**os.environ, "RYE_NODE": tsx}
        with SyncRye.open(project, user_space=Path(folder, "home"), environ=environ) as rye:
            rye.keys.generate("the example")
            rye.sign("tool:*")
            points = {"from": {"x": 0, "y": 0}, "to": {"x": 3, "y": 4}}
            print(rye.execute("tool:acme/far", points))

            geometry = tools / "geometry.ts"
            geometry.write_text(geometry.read_text().replace("hypot", "max"))
            try:
                rye.execute("tool:acme/far", points)
            except ContentChanged as error:
                print(error)


if __name__ == "__main__":
    main()
