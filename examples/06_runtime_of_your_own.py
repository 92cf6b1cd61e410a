"""A runtime of one's own: AWK programs as tools. A runtime is one signed YAML file."""

import tempfile
from pathlib import Path

from ryecore import SyncRye

RUNTIME = """\
version: "1.0.0"
tool_type: runtime
executor_id: rye/core/primitives/execute
category: rye/core/runtimes/awk
description: "AWK runtime: runs a program over one file of the project"
file_types:            # an extension that ryecore doesn't know, and its comment
  .awk: "#"
env_config:
  interpreter: {type: system_binary, binary: gawk, candidates: [mawk, awk], var: RYE_AWK}
config:
  command: "${RYE_AWK}"
  args: ["-F,", "-f", "{tool_path}", "--", "{path}"]
  timeout: 10
config_schema:         # the parameters that may stand as placeholders above
  type: object
  properties:
    path: {type: string}
"""

TOOL = """\
# __version__ = "1.0.0"
# __executor_id__ = "rye/core/runtimes/awk/awk"
# __tool_description__ = "Add up the second column."
# CONFIG_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}},
#                  "required": ["path"]}
NR > 1 { total += $2 }
END { printf "{\\"total\\": %.2f}\\n", total }
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "shop")
        runtime = project / ".ai/tools/rye/core/runtimes/awk/awk.yaml"
        tool = project / ".ai/tools/acme/total.awk"
        for path, content in ((runtime, RUNTIME), (tool, TOOL)):
            path.parent.mkdir(parents=True)
            path.write_text(content)
        (project / "sales.csv").write_text("item,amount\ntea,3.50\ncake,4.25\n")

        with SyncRye.open(project, user_space=Path(folder, "home")) as rye:
            rye.keys.generate("the example")
            rye.sign("tool:*")
            print(rye.execute("tool:acme/total", {"path": "sales.csv"}, trace=True))


if __name__ == "__main__":
    main()
